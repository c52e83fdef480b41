// side.js: the panel that says in numbers what the cell, its row and its head are.

import { bdi, h } from './dom.js';
import { headName, largest, rowFacts, shortest, spoken, visible } from './data.js';

const MORE = 10;

const pairs = (list) => list.flatMap(([name, value]) => [h('dt', { textContent: name }), h('dd', {}, value)]);

/** query 3 'sat' → key 1 'cat' */
export function place(d, cell) {
    const part = (word, k, tokens) => (tokens ? [`${word} ${k} '`, bdi(spoken(tokens[k])), "'"] : [`${word} ${k}`]);
    return [...part('query', cell.query, d.queryTokens), ' → ', ...part('key', cell.key, d.keyTokens)];
}

export class Side {
    constructor(owner) {
        this.owner = owner;
        this.rows = MORE;
        this.title = h('h2');
        this.where = h('div', { className: 'where' });
        this.value = h('div', { className: 'value', part: 'value' });
        this.note = h('p', { className: 'note' });
        this.facts = h('dl');
        this.table = h('table', { part: 'table' }, h('caption'), h('thead', {}, h('tr', {},
            ...['rank', 'key', 'weight'].map((textContent) => h('th', { scope: 'col', textContent })))), h('tbody'));
        this.more = h('button', { type: 'button', textContent: 'More of the row', onclick: () => { this.rows += 40; owner.refresh(); } });
        this.preview = h('canvas', { className: 'preview', hidden: true });
        this.preview.setAttribute('aria-hidden', 'true');
        this.node = h('aside', { className: 'side', part: 'readout', 'aria-label': 'Values', tabIndex: 0 },
            this.title, this.preview, this.where, this.value, this.note, this.facts, this.table, this.more);
    }

    /** at: {head, query, key}; row: the exact row or null; cell: {value, exact}; more: further facts; pool: what a block is. */
    update(d, at, row, cell, masked, more, pool) {
        this.title.textContent = [d.title, headName(d, at.head)].filter(Boolean).join(' · ');
        this.where.replaceChildren(...place(d, at));
        this.value.textContent = cell.exact ? shortest(cell.value) : `≤ ${shortest(cell.value)}`;
        this.note.textContent = masked ? 'masked: this query may not see this key'
            : cell.exact ? '' : `${pool}; the exact value is on its way`;
        this.note.hidden = this.note.textContent === '';
        this.facts.replaceChildren();
        this.table.hidden = this.more.hidden = row === null;
        if (row === null) return;
        const f = rowFacts(row, at.key);
        this.facts.append(...pairs([
            ...more,
            ['rank in row', `${f.rank} of ${row.length}`], ['row sum', shortest(Math.fround(f.sum))],
            ...(d.stage === 'probabilities' ? [['row entropy', `${f.entropy.toFixed(3)} bits`]] : []),
            ['largest', h('span', {}, `key ${f.best} `, ...(d.keyTokens ? [bdi(visible(d.keyTokens[f.best]))] : []))],
        ]));
        const top = largest(row, this.rows);
        this.table.caption.replaceChildren(`row of query ${at.query} `, ...(d.queryTokens ? [bdi(visible(d.queryTokens[at.query]))] : []),
            `, top ${top.length} of ${row.length}`);
        this.more.hidden = top.length < this.rows || top.length >= row.length;
        this.table.tBodies[0].replaceChildren(...top.map((j, k) => {
            const tr = h('tr', { onclick: () => this.owner.setState({ key: j, query: at.query, locked: true }) },
                h('td', { textContent: k + 1 }), h('th', { scope: 'row' }, `${j} `, ...(d.keyTokens ? [bdi(visible(d.keyTokens[j], 16))] : [])),
                h('td', { textContent: shortest(row[j]) }));
            if (j === at.key) tr.setAttribute('aria-current', 'true');
            return tr;
        }));
    }
}
