// input.js: what pointers and keys do.

import { clamp } from './data.js';
import { arcsHit, cellAt, drawOver, minimapBox } from './draw.js';
import { VIEWS } from './model.js';

export const ALL = { z: 1, x: 0, y: 0 };

export function hovered(m) {
    if (m.empty) return;
    m.emit('attention-hover', m.detail());
    m.refresh();
}

export function hoverCell(m, cell) {
    if (cell?.query === m.hover?.query && cell?.key === m.hover?.key) return;
    m.hover = cell;
    if (cell) hovered(m);
    else m.refresh();
}

export function select(m, cell, locked = m.state.locked) {
    m.hover = null;
    m.set({ ...m.within(cell), locked }, true);
    follow(m);
    m.emit('attention-select', m.detail());
}

/** Scrolls so that the cursor is seen. */
function follow(m) {
    const s = m.state, { layout: lay, arcs } = m.ui.panes[0];
    if (s.view === 'arcs' && arcs) {
        const at = s.query * arcs.step + 18;
        if (at < m.scroll + 10 || at > m.scroll + arcs.height - 20) m.scroll = at - arcs.height / 2;
    }
    if (s.view === 'tokens') m.ui.tokens.querySelector('span.query')?.scrollIntoView({ block: 'nearest' });
    if (!lay || s.zoom.z === 1) return;
    const into = (at, from, seen) => (at < from ? at : Math.max(from, at + 1 - seen));
    moveTo(m, s.zoom.z, into(s.key, lay.x, lay.seenX), into(s.query, lay.y, lay.seenY));
}

const moveTo = (m, z, x, y) => m.set({ zoom: z === 1 ? ALL : { z, x: Math.max(0, x), y: Math.max(0, y) } });

/** A zoom that keeps cells within sense: all of the map, or cells of 96 pixels. */
const bounded = (m, l, z) => clamp(z, 1, Math.max(1, (96 * m.state.zoom.z) / l.sx));

/** The cell, in fractions, under a point of the pane. */
const spot = (l, p) => l && ({ x: l.x + (p.x - l.box.x) / l.sx, y: l.y + (p.y - l.box.y) / l.sy });

/** Zooms and leaves a cell where it is. */
function zoomAt(m, { layout: l }, c, factor) {
    if (!l) return;
    const now = m.state.zoom.z, z = bounded(m, l, now * factor), by = now / z;
    moveTo(m, z, c.x - (c.x - l.x) * by, c.y - (c.y - l.y) * by);
}

function zoomBox(m, pane) {
    const { x0, y0, x1, y1 } = pane.box, l = pane.layout;
    pane.box = null;
    const f = Math.min(l.box.w / Math.max(8, Math.abs(x1 - x0)), l.box.h / Math.max(8, Math.abs(y1 - y0)));
    const corner = spot(l, { x: Math.min(x0, x1), y: Math.min(y0, y1) });
    moveTo(m, bounded(m, l, m.state.zoom.z * f), corner.x, corner.y);
    m.refresh();
}

/* --- keys ------------------------------------------------------------------------------------- */

export function onKey(m, e) {
    // AltGr writes [ and { on many keyboards, and may count as Ctrl and Alt.
    const command = (e.altKey || e.ctrlKey) && !e.getModifierState('AltGraph');
    if (m.empty || (command && e.altKey) || e.metaKey || e.target.closest?.('input, select, dialog, .menu')) return;
    if (e.key === '?') m.ui.help.showModal();
    if (e.composedPath()[0] !== m.ui.stage) return;
    const s = m.state, d = m.data, cell = { query: s.query, key: s.key };
    const turn = (by) => {
        const head = typeof s.head === 'number' ? s.head + by : by > 0 ? 0 : d.heads - 1;
        m.hoverHead = null;
        if (head >= 0 && head < d.heads) m.set({ head }, true);
    };
    const layer = (by) => turn(by * d.heads / d.layers);
    const zoom = (factor) => zoomAt(m, m.ui.panes[0], { x: s.key + 0.5, y: s.query + 0.5 }, factor);
    const moves = {
        ArrowLeft: { key: s.key - 1 },
        ArrowRight: { key: s.key + 1 },
        ArrowUp: { query: s.query - 1 },
        ArrowDown: { query: s.query + 1 },
        PageUp: { query: s.query - 10 },
        PageDown: { query: s.query + 10 },
        Home: e.ctrlKey ? { query: 0 } : { key: 0 },
        End: e.ctrlKey ? { query: d.queries - 1 } : { key: d.keys - 1 },
    };
    const acts = {
        '[': () => turn(-1),
        ']': () => turn(1),
        '{': () => layer(-1),
        '}': () => layer(1),
        '+': () => zoom(1.5),
        '=': () => zoom(1.5),
        '-': () => zoom(1 / 1.5),
        0: () => m.set({ zoom: ALL }),
        Enter: () => select(m, cell, !s.locked),
        Escape: () => m.set({ locked: false, selection: [] }),
    };
    VIEWS.forEach((view, k) => { acts[k + 1] = () => m.set({ view }); });
    if (moves[e.key]) select(m, { ...cell, ...moves[e.key] });
    else if (acts[e.key] && !command) acts[e.key]();
    else return;
    e.preventDefault();
}

/* --- pointers --------------------------------------------------------------------------------- */

const distance = (a, b) => Math.hypot(a.x - b.x, a.y - b.y);

/** Wheel, pinch, drag, box and clicks on one pane. */
export class Pointers {
    #down = new Map(); // where each pointer is that is held
    #start = null; // how a drag began

    constructor(m, pane) {
        Object.assign(this, { m, pane });
        const on = (type, f) => pane.node.addEventListener(type, (e) => f.call(this, e, this.#where(e)),
            { passive: false });
        on('wheel', this.#wheel);
        on('pointerdown', this.#press);
        on('pointermove', this.#move);
        on('pointerup', this.#release);
        on('pointercancel', this.#release);
        on('pointerleave', () => hoverCell(m, null));
        on('dblclick', (e, p) => zoomAt(m, pane, spot(pane.layout, p), 2));
    }

    #where(e) {
        const box = this.pane.node.getBoundingClientRect();
        return { x: e.clientX - box.left, y: e.clientY - box.top };
    }

    #cellAt({ x, y }) {
        const { layout, arcs, data } = this.pane, { query, key } = this.m.state;
        if (layout) return cellAt(layout, data, x, y);
        const hit = arcs && arcsHit(data, arcs, x, y);
        return hit && { query, key, ...hit };
    }

    #wheel(e, p) {
        const { m, pane: { layout } } = this;
        e.preventDefault();
        const turned = clamp(-e.deltaY, -100, 100) * (e.ctrlKey ? 0.01 : 0.004);
        if (layout) zoomAt(m, this.pane, spot(layout, p), Math.exp(turned));
        else this.#scroll(m.scroll + e.deltaY);
    }

    #scroll(to) {
        this.m.scroll = to;
        this.m.refresh();
    }

    #press(e, p) {
        if (e.button !== 0 || this.m.empty) return;
        this.pane.node.setPointerCapture(e.pointerId);
        this.#down.set(e.pointerId, p);
        this.#start = { ...p, lay: this.pane.layout, scroll: this.m.scroll, shift: e.shiftKey,
            moved: this.#down.size > 1 };
    }

    #move(e, p) {
        const before = this.#down.get(e.pointerId), from = this.#start;
        if (!before) {
            hoverCell(this.m, this.#cellAt(p));
            return;
        }
        this.#down.set(e.pointerId, p);
        if (this.#down.size === 2 && this.pane.layout) this.#pinch(e.pointerId, before, p);
        else if (from && (from.moved || distance(p, from) > 4)) this.#drag(p);
    }

    #pinch(id, before, p) {
        const [, o] = [...this.#down].find(([other]) => other !== id);
        const middle = { x: (p.x + o.x) / 2, y: (p.y + o.y) / 2 };
        zoomAt(this.m, this.pane, spot(this.pane.layout, middle), distance(p, o) / (distance(before, o) || 1));
    }

    #drag(p) {
        const { m, pane } = this, from = this.#start, l = from.lay, { z } = m.state.zoom;
        from.moved = true;
        if (!l) this.#scroll(from.scroll + from.y - p.y);
        else if (from.shift) {
            pane.box = { x0: from.x, y0: from.y, x1: p.x, y1: p.y };
            drawOver(m, pane);
        } else if (z > 1) moveTo(m, z, l.x - (p.x - from.x) / l.sx, l.y - (p.y - from.y) / l.sy);
    }

    #release(e, p) {
        if (!this.#down.delete(e.pointerId) || !this.#start) return;
        if (this.pane.box) zoomBox(this.m, this.pane);
        else if (!this.#start.moved && e.type === 'pointerup') this.#click(p);
        this.#start = null;
    }

    #click(p) {
        const { m, pane } = this, l = pane.layout, d = pane.data, { z } = m.state.zoom;
        if (l && z > 1) {
            const box = minimapBox(l, d), x = (p.x - box.x) / box.w, y = (p.y - box.y) / box.h;
            if (x > 0 && y > 0 && x < 1 && y < 1) {
                moveTo(m, z, x * d.keys - l.seenX / 2, y * d.queries - l.seenY / 2);
                return;
            }
        }
        const cell = this.#cellAt(p);
        if (cell) select(m, cell, true);
    }
}
