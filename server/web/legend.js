// legend.js: the colour bar with its limits, which can be moved, and what the colours mean in words.

import { css, position, valueAt } from './colour.js';
import { h } from './dom.js';

const short = (v) => (v === 0 || (Math.abs(v) >= 1e-3 && Math.abs(v) < 1e5) ? String(Number(v.toPrecision(3))) : v.toExponential(1));

export class Legend {
    constructor(owner) {
        this.owner = owner;
        this.bar = h('canvas', { width: 256, height: 1 });
        this.bar.setAttribute('aria-hidden', 'true');
        this.low = this.#handle('low', 'Lower colour limit');
        this.high = this.#handle('high', 'Upper colour limit');
        this.numbers = [0, 0.25, 0.5, 0.75, 1].map(() => h('output'));
        this.reset = h('button', { type: 'button', textContent: 'Reset limits', onclick: () => owner.setState({ low: null, high: null }) });
        this.words = h('span', { part: 'legend-text' });
        this.colours = h('div', { className: 'colours' }, this.bar, ...this.numbers, this.low, this.high);
        this.node = h('div', { className: 'legend', part: 'legend' }, this.colours, this.words, this.reset);
    }

    #handle(name, label) {
        const node = h('button', { type: 'button', className: 'handle', role: 'slider', 'aria-label': label });
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
            const by = { ArrowRight: 0.02, ArrowUp: 0.02, ArrowLeft: -0.02, ArrowDown: -0.02, PageUp: 0.1, PageDown: -0.1 }[e.key];
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
        const key = JSON.stringify([full, limits, lut[0], lut[128], lut[255], movable, this.colours.clientWidth]);
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
            for (const [name, value] of [['min', full.low], ['max', full.high], ['now', v]]) node.setAttribute(`aria-value${name}`, value);
            node.setAttribute('aria-valuetext', short(v));
        }
        this.reset.hidden = !movable || (limits.low === full.low && limits.high === full.high);
    }
}
