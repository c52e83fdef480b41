// panel.js: what stands beside the map: the colour bar with its limits, and the numbers of a cell.

import { css, position, valueAt } from './colour.js';
import { headName, largest, rowFacts, shortest, spoken, visible } from './data.js';
import { bdi, h } from './dom.js';

const short = (v) => (v === 0 || (Math.abs(v) >= 1e-3 && Math.abs(v) < 1e5) ? String(Number(v.toPrecision(3)))
    : v.toExponential(1));

export class Legend {
    constructor(owner) {
        this.owner = owner;
        this.bar = h('canvas', { width: 256, height: 1, 'aria-hidden': 'true' });
        this.low = this.#handle('low', 'Lower colour limit');
        this.high = this.#handle('high', 'Upper colour limit');
        this.numbers = [0, 0.25, 0.5, 0.75, 1].map(() => h('output'));
        this.reset = h('button', { type: 'button', textContent: 'Reset limits', onclick: () =>
            owner.setState({ low: null, high: null }) });
        this.words = h('span', { part: 'legend-text' });
        this.colours = h('div', { className: 'colours' }, this.bar, ...this.numbers, this.low, this.high);
        this.node = h('div', { className: 'legend', part: 'legend' }, this.colours, this.words, this.reset);
    }

    #handle(name, label) {
        const node = h('button', { type: 'button', className: 'handle', role: 'slider',
            'aria-label': label });
        const to = (t) => {
            const v = Number(valueAt(Math.max(0, Math.min(1, t)), this.full).toPrecision(4));
            const other = name === 'low' ? this.limits.high : this.limits.low;
            if (name === 'low' ? v >= other : v <= other) return;
            this.limits = { ...this.limits, [name]: v };
            this.owner.setState({ [name]: v });
        };
        node.addEventListener('pointerdown', (e) => node.setPointerCapture(e.pointerId));
        node.addEventListener('pointermove', (e) => {
            if (!node.hasPointerCapture(e.pointerId)) return;
            const box = this.bar.getBoundingClientRect();
            to((e.clientX - box.left) / box.width);
        });
        node.addEventListener('keydown', (e) => {
            const by = { ArrowRight: 0.02, ArrowUp: 0.02, ArrowLeft: -0.02, ArrowDown: -0.02, PageUp: 0.1,
                PageDown: -0.1 }[e.key];
            if (!by) return;
            e.preventDefault();
            to(position(this.limits[name], this.full) + by);
        });
        return node;
    }

    /** full: the limits of the scale; limits: those in force, within it; words: what the colours mean. */
    update(full, limits, lut, words, movable) {
        const said = words.map((x) => x.textContent ?? x).join('');
        if (said !== this.said) this.words.replaceChildren(...words);
        const key = JSON.stringify([full, limits, lut[0], lut[128], lut[255], movable,
            this.colours.clientWidth]);
        Object.assign(this, { full, limits, said });
        if (key === this.key) return;
        this.key = key;
        const g = this.bar.getContext('2d'), wide = this.colours.clientWidth || 320;
        for (let k = 0; k < 256; k++) {
            g.fillStyle = css(lut[Math.round(position(valueAt(k / 255, full), limits) * 255)]);
            g.fillRect(k, 0, 1, 1);
        }
        this.numbers.forEach((node, k) => {
            const t = k / (this.numbers.length - 1);
            node.textContent = short(valueAt(t, full));
            node.style.left = `${t * wide}px`;
        });
        for (const [node, v] of [[this.low, limits.low], [this.high, limits.high]]) {
            node.hidden = !movable;
            node.style.left = `${position(v, full) * wide}px`;
            for (const [name, value] of [['min', full.low], ['max', full.high],
                ['now', v]]) node.setAttribute(`aria-value${name}`, value);
            node.setAttribute('aria-valuetext', short(v));
        }
        this.reset.hidden = !movable || (limits.low === full.low && limits.high === full.high);
    }
}

const MORE = 10;

const pairs = (list) => list.flatMap(([name, value]) => [h('dt', { textContent: name }), h('dd', {}, value)]);

/** query 3 'sat' → key 1 'cat' */
export function place(d, cell) {
    const part = (word, k, tokens) => (tokens ? [`${word} ${k} '`, bdi(spoken(tokens[k])), "'"]
        : [`${word} ${k}`]);
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
            ...['rank', 'key', 'weight'].map((textContent) => h('th', { scope: 'col', textContent })))),
                h('tbody'));
        this.more = h('button', { type: 'button', textContent: 'More of the row',
            onclick: () => { this.rows += 40; owner.refresh(); } });
        this.preview = h('canvas', { className: 'preview', hidden: true, 'aria-hidden': 'true' });
        this.node = h('aside', { className: 'side', part: 'readout', 'aria-label': 'Values', tabIndex: 0 },
            this.title, this.preview, this.where, this.value, this.note, this.facts, this.table, this.more);
    }

    /** at: {head, query, key}; row: the exact row or null; cell: {value, exact}; more: further facts. */
    update(d, at, row, cell, masked, more) {
        this.title.textContent = [d.title, headName(d, at.head)].filter(Boolean).join(' · ');
        this.where.replaceChildren(...place(d, at));
        this.value.textContent = cell.exact ? shortest(cell.value) : `≤ ${shortest(cell.value)}`;
        this.note.textContent = masked ? 'masked: this query may not see this key'
            : cell.exact ? ''
                : `the ${d.pooled} of its ${d.bq}×${d.bk} cells; the exact value is on its way`;
        this.note.hidden = this.note.textContent === '';
        this.facts.replaceChildren();
        this.table.hidden = this.more.hidden = row === null;
        if (row === null) return;
        const f = rowFacts(row, at.key);
        this.facts.append(...pairs([
            ...more,
            ['rank in row', `${f.rank} of ${row.length}`], ['row sum', shortest(Math.fround(f.sum))],
            ...(d.stage === 'probabilities' ? [['row entropy', `${f.entropy.toFixed(3)} bits`]] : []),
            ['largest', h('span', {}, `key ${f.best} `, ...(d.keyTokens ? [bdi(visible(d.keyTokens[f.best]))]
                : []))],
        ]));
        const top = largest(row, this.rows);
        this.table.caption.replaceChildren(`row of query ${at.query} `,
            ...(d.queryTokens ? [bdi(visible(d.queryTokens[at.query]))] : []),
            `, top ${top.length} of ${row.length}`);
        this.more.hidden = top.length < this.rows || top.length >= row.length;
        this.table.tBodies[0].replaceChildren(...top.map((j, k) => {
            const tr = h('tr', { onclick: () => this.owner.setState({ key: j, query: at.query,
                locked: true }) },
                h('td', { textContent: k + 1 }), h('th', { scope: 'row' }, `${j} `,
                    ...(d.keyTokens ? [bdi(visible(d.keyTokens[j], 16))] : [])),
                h('td', { textContent: shortest(row[j]) }));
            if (j === at.key) tr.setAttribute('aria-current', 'true');
            return tr;
        }));
    }
}
