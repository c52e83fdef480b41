// lists.js: the views made of elements: heads as small pictures, and the text with its weights.

import { channels, colourOf, css } from './colour.js';
import { count, headName, inSlices, isMasked, shortest, visible } from './data.js';
import { h } from './dom.js';
import { ALL, hoverCell, hovered, select } from './input.js';
import { extremes } from './model.js';

/** Paints at one pixel a cell; the style sheet makes it larger. */
function paint(m, canvas, head) {
    const t = m.thumb(head);
    if (!t) return;
    let { limits } = m.limits({ data: m.data }, null, false);
    if (['head', 'row', 'visible'].includes(m.state.scale)) {
        const own = extremes(t);
        limits = { low: Math.min(0, own.low), high: own.high || 1 };
    }
    const lut = m.lut(), image = new ImageData(t.cols, t.rows), out = new Uint32Array(image.data.buffer);
    t.values.forEach((v, k) => { if (v - v === 0) out[k] = colourOf(v, limits, lut); });
    Object.assign(canvas, { width: t.cols, height: t.rows }).getContext('2d').putImageData(image, 0, 0);
}

function headButton(m, head) {
    const canvas = h('canvas', { width: 1, height: 1, 'aria-hidden': 'true' }), label = h('span');
    const choose = (e) => {
        if (!e.shiftKey || typeof head !== 'number') {
            m.set({ head }, true);
            return;
        }
        const picked = m.state.selection, without = picked.filter((x) => x !== head);
        m.set({ selection: without.length < picked.length ? without
            : [...picked, head].sort((a, b) => a - b) });
    };
    const hover = (on) => (e) => {
        if (on && e.pointerType === 'touch') return;
        m.hoverHead = on ? head : null;
        if (on) hovered(m);
        else m.refresh();
    };
    const solo = () => m.set({ head, selection: [], view: 'matrix', zoom: ALL });
    const on = { onpointerenter: hover(true), onpointerleave: hover(false), onclick: choose,
        ondblclick: solo };
    return Object.assign(h('button', { type: 'button', className: 'head', ...on }, canvas, label),
        { canvas, label, head });
}

/** Buttons for heads; name(head) is a text of one or two lines. */
function fill(m, node, heads, name) {
    const { head, selection, scale, colormap } = m.state, filled = heads.join();
    if (node.filled !== filled || node.of !== m.data) {
        node.replaceChildren(...heads.map((x) => headButton(m, x)));
        Object.assign(node, { filled, of: m.data, ready: '' });
    }
    const ready = JSON.stringify([head, selection, scale, colormap, m.ink, m.thumbsMade]);
    if (node.ready === ready) return;
    node.ready = ready;
    for (const b of node.children) {
        b.setAttribute('aria-pressed', String(b.head === head));
        b.classList.toggle('chosen', selection.includes(b.head));
        const [first, second] = name(b.head).split('\n');
        b.label.replaceChildren(first, ...(second ? [h('br'), h('small', { textContent: second })] : []));
    }
    const last = (b) => (typeof b.head === 'string' ? 1 : 0); // sums of heads want all of them first
    const todo = [...node.children].sort((a, b) => last(a) - last(b));
    function* pictures() {
        for (const b of todo) {
            paint(m, b.canvas, b.head);
            yield;
        }
    }
    node.stop?.();
    node.stop = inSlices(pictures(), () => {}, () => {});
}

export function updateStrip(m) {
    const d = m.data, per = d.heads / d.layers, sum = `of ${m.state.selection.length || 'all'}`;
    const number = (x) => (d.layers > 1 ? `${Math.floor(x / per)}·${x % per}` : String(x));
    fill(m, m.ui.heads, ['mean', 'max', ...count(d.heads)], (x) =>
        (typeof x === 'string' ? `${x}\n${sum}` : number(x)));
}

const NOTES = {
    index: () => '',
    entropy: (f) => `\n${f.entropy.toFixed(2)} bits`,
    first: (f) => `\n${f.first.toFixed(3)} to the first`,
    diagonal: (f) => `\n${f.diagonal.toFixed(3)} near the diagonal`,
};

export function grid(m) {
    const { sort } = m.state, d = m.data, { ui } = m, heads = count(d.heads), per = d.heads / d.layers;
    if (sort !== 'index') {
        const order = (x) => (sort === 'entropy' ? 1 : -1) * m.facts(x)[sort];
        heads.sort((a, b) => order(a) - order(b) || a - b);
    }
    const layered = d.layers > 1 && sort === 'index' && per <= 16; // a row for each layer
    ui.grid.style.gridTemplateColumns = layered ? `repeat(${per}, minmax(64px, 1fr))` : '';
    ui.grid.classList.toggle('few', d.heads <= 12);
    fill(m, ui.grid, heads, (x) => headName(d, x) + (sort === 'index' ? '' : NOTES[sort](m.facts(x))));
    paint(m, ui.side.preview, m.head);
    const made = m.levels(m.head);
    return { made, ...m.limits(made) };
}

const MOST_TOKENS = 3000;

export function tokensNode(m) {
    // The cell that a token stands for beside the query or key that is chosen.
    const cellOf = (e) => {
        const at = e.target.closest?.('span[data-index]');
        if (!at) return null;
        const { query, key, direction } = m.state, { side } = at.dataset, k = Number(at.dataset.index);
        return side === 'query' || (side === 'both' && direction === 'from') ? { query: k, key }
            : { query, key: k };
    };
    const onclick = (e) => {
        const cell = cellOf(e);
        if (cell) select(m, cell, true);
    };
    // A query that is locked stays, and the pointer shows its weight on what is under it.
    const onpointermove = (e) => {
        if (e.pointerType === 'touch') return;
        const { query, key, direction, locked } = m.state, cell = cellOf(e);
        if (!cell || !locked) {
            hoverCell(m, cell);
            return;
        }
        const k = Number(e.target.closest('span').dataset.index);
        hoverCell(m, m.within(direction === 'from' ? { query, key: k } : { query: k, key }));
    };
    return h('div', { className: 'tokens', onclick, onpointermove, onpointerleave: () =>
        hoverCell(m, null) });
}

function fillTokens(m, node) {
    const d = m.data, same = d.queries === d.keys && String(d.queryTokens) === String(d.keyTokens);
    const run = (tokens, n, side) => count(Math.min(n, MOST_TOKENS)).map((k) => {
        const span = h('span', { dir: 'auto', textContent: visible(tokens ? tokens[k] : k, 60) });
        Object.assign(span.dataset, { side, index: k });
        return span;
    });
    const title = (textContent) => h('h3', { textContent });
    const apart = () => [title('queries'), ...run(d.queryTokens, d.queries, 'query'), title('keys'),
        ...run(d.keyTokens, d.keys, 'key')];
    node.replaceChildren(...(same ? run(d.keyTokens, d.keys, 'both') : apart()));
    node.of = d;
}

/** Black or white, whichever reads better on a colour. */
function onto(colour) {
    const [r, g, b] = channels(colour).map((v) => (v / 255) ** 2.2);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? '#000' : '#fff';
}

export function tokens(m) {
    const d = m.data, { ui, head, cell } = m, { direction, mask } = m.state, from = direction === 'from',
        lut = m.lut('ramp');
    const made = m.levels(head), drawn = { made, ...m.limits(made) }, n = Math.max(d.queries, d.keys);
    if (ui.tokens.of !== d) fillTokens(m, ui.tokens);
    for (const node of ui.tokens.querySelectorAll('span')) {
        const k = Number(node.dataset.index), { side } = node.dataset, [query, key] = from ? [cell.query, k]
            : [k, cell.key];
        const weighed = side === 'both' || side === (from ? 'key' : 'query');
        const masked = weighed && mask && isMasked(d, head, query, key);
        let v = NaN;
        if (weighed && made.values && !masked) v = d.pooled ? m.value(head, { query, key }).value
            : made.values[query * d.keys + key];
        const colour = v - v === 0 ? css(colourOf(v, drawn.limits, lut)) : '';
        node.className = [side !== 'key' && k === cell.query && 'query', side !== 'query' && k === cell.key
            && 'key', masked && 'masked']
            .filter(Boolean).join(' ');
        node.style.backgroundColor = colour;
        node.style.color = colour && onto(colour);
        node.title = colour && shortest(v);
    }
    const cut = n > MOST_TOKENS ? `The first ${MOST_TOKENS} of ${n} tokens. ` : '';
    const what = from ? 'What the outlined query attends to.' : 'Which queries attend to the underlined key.';
    return { ...drawn, kind: 'ramp', notes: [cut + what] };
}
