// pane.js: draws a map as a matrix. Work follows the pixels that are seen, never queries x keys.

import { ticks } from './colour.js';
import { visible } from './data.js';

const scratch = { canvas: null, pixels: null };

/** A canvas of at least width x height, and as many packed pixels, used again from frame to frame. */
function pixels(width, height) {
    const s = scratch;
    if (!s.canvas || s.canvas.width < width || s.canvas.height < height) {
        s.canvas ??= document.createElement('canvas');
        s.canvas.width = Math.max(width, s.canvas.width);
        s.canvas.height = Math.max(height, s.canvas.height);
    }
    if (!s.pixels || s.pixels.length < width * height) s.pixels = new Uint32Array(width * height);
    return s.pixels;
}

/** The finest level whose blocks are no smaller than a pixel, so that no block is lost. */
export function pickLevel(levels, sx, sy) {
    const fits = (l) => (l.bw * sx >= 0.99 || l.cols <= 64) && (l.bh * sy >= 0.99 || l.rows <= 64);
    return levels.find(fits) ?? levels.at(-1);
}

/**
 * Draws the part of the pyramid that the box shows. All in device pixels: `v` is {x, y} the cell at
 * the box's corner and {sx, sy} the size of a cell. Returns the level that was drawn.
 */
export function paintCells(ctx, levels, colours, v, box) {
    const l = pickLevel(levels, v.sx, v.sy);
    // While the pyramid grows there may be no such level yet: then every few cells of the best one.
    const stepX = Math.max(1, Math.floor(1 / (l.bw * v.sx))),
        stepY = Math.max(1, Math.floor(1 / (l.bh * v.sy)));
    const c0 = Math.max(0, Math.floor(v.x / l.bw)),
        c1 = Math.min(l.cols, Math.ceil((v.x + box.w / v.sx) / l.bw));
    const r0 = Math.max(0, Math.floor(v.y / l.bh)),
        r1 = Math.min(l.rows, Math.ceil((v.y + box.h / v.sy) / l.bh));
    const nc = Math.ceil((c1 - c0) / stepX), nr = Math.ceil((r1 - r0) / stepY);
    if (nc <= 0 || nr <= 0) return l;
    const out = pixels(nc, nr), bits = l.bits;
    let k = 0;
    for (let r = r0; r < r1; r += stepY) {
        const row = r * l.cols;
        for (let c = c0; c < c1; c += stepX) out[k++] = colours[bits[row + c] >>> 15];
    }
    const image = new ImageData(new Uint8ClampedArray(out.buffer, 0, nc * nr * 4), nc, nr);
    scratch.canvas.getContext('2d').putImageData(image, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(scratch.canvas, 0, 0, nc, nr, box.x + (c0 * l.bw - v.x) * v.sx,
        box.y + (r0 * l.bh - v.y) * v.sy,
        nc * stepX * l.bw * v.sx, nr * stepY * l.bh * v.sy);
    return l;
}

let hatchMade = null; // one pattern for each pair of colours

/** Diagonal lines: what stands for "masked", which is something other than zero. */
export function hatch(ctx, ground, line, dpr) {
    const key = `${ground} ${line} ${dpr}`;
    if (hatchMade?.key !== key) {
        const n = Math.round(6 * dpr), c = document.createElement('canvas');
        c.width = c.height = n;
        const g = c.getContext('2d');
        g.fillStyle = ground;
        g.fillRect(0, 0, n, n);
        g.strokeStyle = line;
        g.lineWidth = Math.max(1, dpr);
        g.beginPath();
        for (const d of [-n, 0, n]) { g.moveTo(d - 1, n + 1); g.lineTo(d + n + 1, -1); }
        g.stroke();
        hatchMade = { key, canvas: c };
    }
    return ctx.createPattern(hatchMade.canvas, 'repeat');
}

const FONT = 12, TEXT = 10; // the size of labels, and the least size of a cell that has one

/** As much of a word as fits. */
function fitted(ctx, word, width) {
    const letters = [...word];
    for (let n = letters.length; n > 1; n--) {
        const text = n === letters.length ? word : `${letters.slice(0, n - 1).join('')}…`;
        if (ctx.measureText(text).width <= width + 1) return text;
    }
    return letters[0] ?? '';
}

/** The width that labels need: of some of them, so that it does not change while one pans. */
function labelWidth(ctx, tokens, most) {
    if (!tokens) return 0;
    let width = 0;
    const step = Math.max(1, Math.floor(tokens.length / 300));
    for (let i = 0; i < tokens.length; i += step) width = Math.max(width,
        ctx.measureText(visible(tokens[i], 16)).width);
    return Math.min(most, Math.ceil(width));
}

/**
 * Where everything stands, in CSS pixels. view {z, x, y}: how often larger than fitting, and the cell
 * in the corner. A cell is square unless that would make a long map a thread.
 */
export function layout(ctx, d, width, height, view, font) {
    ctx.font = `${FONT}px ${font}`;
    const digits = (n) => Math.ceil(ctx.measureText(String(Math.max(0, n - 1))).width);
    const side = labelWidth(ctx, d.queryTokens, Math.min(130, width * 0.25)),
        left = side + digits(d.queries) + 22;
    const words = labelWidth(ctx, d.keyTokens, Math.min(110, height * 0.25));
    const box = { x: left, y: 0, w: Math.max(20, width - left - 14), h: 0 };
    const fit = (top) => {
        box.y = top;
        box.h = Math.max(20, height - top - 10);
        let sx = box.w / Math.max(1, d.keys), sy = box.h / Math.max(1, d.queries);
        if (sx / sy < 6 && sy / sx < 6) sx = sy = Math.min(sx, sy);
        return { sx: Math.min(sx, 56), sy: Math.min(sy, 56) };
    };
    const upright = words + digits(d.keys) + 22;
    let { sx, sy } = fit(upright);
    const slanted = sx * view.z >= 17;
    if (slanted) {
        ({ sx, sy } = fit(Math.ceil(words * 0.72) + 34));
        const over = words * 0.72 + 8 - (box.w - sx * d.keys); // the last label leans out to the right
        if (over > 0 && view.z === 1) { box.w -= Math.min(over, 90); ({ sx, sy } = fit(box.y)); }
    }
    sx *= view.z; sy *= view.z;
    const spare = Math.max(0, box.w - sx * d.keys) / 2; // a narrow map stands in the middle
    box.x += spare;
    box.w -= spare;
    const seenX = Math.min(d.keys, box.w / sx), seenY = Math.min(d.queries, box.h / sy);
    return {
        width, height, box, sx, sy, slanted, side, words, seenX, seenY,
        x: Math.max(0, Math.min(view.x, d.keys - seenX)), y: Math.max(0, Math.min(view.y, d.queries - seenY)),
    };
}

/** The cell under a point, or null. */
export function cellAt(l, d, x, y) {
    const j = Math.floor(l.x + (x - l.box.x) / l.sx), i = Math.floor(l.y + (y - l.box.y) / l.sy);
    const inside = x >= l.box.x && y >= l.box.y && x < l.box.x + l.box.w && y < l.box.y + l.box.h;
    return inside && i >= 0 && j >= 0 && i < d.queries && j < d.keys ? { query: i, key: j } : null;
}

/** Which rows or columns have a label, and which only a number. */
function marks(from, seen, n, size) {
    const first = Math.floor(from), last = Math.min(n - 1, Math.ceil(from + seen) - 1);
    if (size >= TEXT) return Array.from({ length: Math.max(0, last - first + 1) }, (_, k) => first + k);
    return ticks(first, last, Math.max(1, (seen * size) / 60)).filter((v) => Number.isInteger(v) && v >= first
        && v <= last);
}

/** Every label of both axes, as the canvas and the SVG draw it. */
export function axisLabels(l, d) {
    const out = [], { box } = l;
    const middle = (k, from, size) => (k + 0.5 - from) * size;
    for (const i of marks(l.y, l.seenY, d.queries, l.sy)) {
        const y = box.y + middle(i, l.y, l.sy);
        if (y < box.y || y > box.y + Math.min(box.h, l.sy * d.queries)) continue;
        const word = d.queryTokens && l.sy >= TEXT ? visible(d.queryTokens[i], 16) : '';
        out.push({ axis: 'query', index: i, x: box.x - 8, y, word, angle: 0 });
    }
    for (const j of marks(l.x, l.seenX, d.keys, l.sx)) {
        const x = box.x + middle(j, l.x, l.sx);
        if (x < box.x || x > box.x + Math.min(box.w, l.sx * d.keys)) continue;
        const word = d.keyTokens && l.sx >= TEXT ? visible(d.keyTokens[j], 16) : '';
        out.push({ axis: 'key', index: j, x, y: box.y - 8, word, angle: l.slanted ? -45 : -90 });
    }
    return out;
}

function drawLabels(ctx, l, d, ink, font, at) {
    ctx.textBaseline = 'middle';
    let wide = 0;
    for (const t of axisLabels(l, d)) wide = Math.max(wide, t.axis === 'query'
        ? ctx.measureText(t.index).width : 0);
    for (const t of axisLabels(l, d)) {
        const here = at && at[t.axis] === t.index;
        ctx.save();
        ctx.translate(t.x, t.y);
        if (t.axis === 'query') {
            ctx.textAlign = 'right';
            ctx.font = `10px ${font}`;
            ctx.fillStyle = here ? ink.accent : ink.muted;
            ctx.fillText(t.index, 0, 0);
            ctx.font = `${here ? '600 ' : ''}${FONT}px ${font}`;
            ctx.fillStyle = here ? ink.accent : ink.text;
            if (t.word) ctx.fillText(fitted(ctx, t.word, l.side * 1.12), -wide - 5, 0);
        } else {
            ctx.textAlign = t.word && t.angle === -45 ? 'center' : 'left';
            ctx.font = `10px ${font}`;
            ctx.fillStyle = here ? ink.accent : ink.muted;
            if (t.angle === -45 || !t.word) { ctx.textAlign = 'center'; ctx.fillText(t.index, 0, -1); }
            ctx.translate(0, t.angle === -45 ? -10 : 0);
            ctx.rotate((t.angle * Math.PI) / 180);
            ctx.textAlign = 'left';
            if (t.angle === -90 && t.word) {
                ctx.fillText(t.index, 0, 0);
                ctx.translate(ctx.measureText(t.index).width + 5, 0);
            }
            ctx.font = `${here ? '600 ' : ''}${FONT}px ${font}`;
            ctx.fillStyle = here ? ink.accent : ink.text;
            if (t.word) ctx.fillText(fitted(ctx, t.word, l.words * 1.12), t.angle === -45 ? 2 : 0, 0);
        }
        ctx.restore();
    }
}

/**
 * Draws the whole pane. p: {d, levels, colours, tiles, layout, ink, font, dpr, at, names}. The
 * context is scaled by dpr here. Returns the level that was drawn.
 */
export function drawPane(ctx, p) {
    const { d, layout: l, ink, dpr } = p, { box } = l;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    if (p.ground) { ctx.fillStyle = p.ground; ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height); }
    const area = { x: box.x * dpr, y: box.y * dpr, w: Math.min(box.w, (d.keys - l.x) * l.sx) * dpr,
        h: Math.min(box.h, (d.queries - l.y) * l.sy) * dpr };
    ctx.save();
    ctx.beginPath();
    ctx.rect(area.x, area.y, area.w, area.h);
    ctx.clip();
    ctx.fillStyle = hatch(ctx, ink.ground, ink.line, dpr);
    ctx.fillRect(area.x, area.y, area.w, area.h);
    const v = { x: l.x, y: l.y, sx: l.sx * dpr, sy: l.sy * dpr };
    const used = paintCells(ctx, p.levels, p.colours, v, area);
    for (const t of p.tiles ?? []) {
        const part = { values: t.values, bits: t.bits, rows: t.queries[1] - t.queries[0],
            cols: t.keys[1] - t.keys[0], bh: 1, bw: 1 };
        if (v.sx < 0.5 || v.sy < 0.5 || part.rows < 2) continue;
        const at = { x: Math.max(area.x, area.x + (t.keys[0] - v.x) * v.sx),
            y: Math.max(area.y, area.y + (t.queries[0] - v.y) * v.sy) };
        const from = { x: Math.max(0, v.x - t.keys[0]), y: Math.max(0, v.y - t.queries[0]), sx: v.sx,
            sy: v.sy };
        paintCells(ctx, [part], p.colours, from, { ...at, w: area.x + area.w - at.x,
            h: area.y + area.h - at.y });
    }
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    if (l.sx >= 14 && l.sy >= 14) { // thin gaps make cells countable
        ctx.strokeStyle = ink.ground;
        ctx.globalAlpha = 0.55;
        ctx.lineWidth = 1;
        ctx.beginPath();
        for (let j = Math.ceil(l.x); j < l.x + l.seenX; j++) {
            ctx.moveTo(box.x + (j - l.x) * l.sx, box.y);
            ctx.lineTo(box.x + (j - l.x) * l.sx, box.y + box.h);
        }
        for (let i = Math.ceil(l.y); i < l.y + l.seenY; i++) {
            ctx.moveTo(box.x, box.y + (i - l.y) * l.sy);
            ctx.lineTo(box.x + box.w, box.y + (i - l.y) * l.sy);
        }
        ctx.stroke();
    }
    ctx.restore();
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    ctx.strokeStyle = ink.line;
    ctx.lineWidth = 1;
    ctx.strokeRect(box.x - 0.5, box.y - 0.5, area.w / dpr + 1, area.h / dpr + 1);
    drawLabels(ctx, l, d, ink, p.font, p.at);
    return used;
}

/** The cursor and the cell under the pointer, on a canvas of its own: cheap to draw again. */
export function drawCursor(ctx, p) {
    const { d, layout: l, ink, dpr } = p, { box } = l;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    const w = Math.min(box.w, (d.keys - l.x) * l.sx), h = Math.min(box.h, (d.queries - l.y) * l.sy);
    ctx.save();
    ctx.beginPath();
    ctx.rect(box.x - 3, box.y - 3, w + 6, h + 6);
    ctx.clip();
    const cross = (cell, strong) => {
        const x = box.x + (cell.key - l.x) * l.sx, y = box.y + (cell.query - l.y) * l.sy;
        const cw = Math.max(3, l.sx), ch = Math.max(3, l.sy);
        ctx.lineWidth = 1;
        ctx.strokeStyle = ink.accent;
        ctx.globalAlpha = strong ? 0.9 : 0.55;
        ctx.beginPath();
        for (const yy of [y, y + ch]) { ctx.moveTo(box.x, yy); ctx.lineTo(box.x + w, yy); }
        for (const xx of [x, x + cw]) { ctx.moveTo(xx, box.y); ctx.lineTo(xx, box.y + h); }
        ctx.stroke();
        ctx.globalAlpha = 1;
        ctx.lineWidth = strong ? 5 : 3;
        ctx.strokeStyle = ink.ground;
        ctx.strokeRect(x, y, cw, ch);
        ctx.lineWidth = strong ? 2.5 : 1.5;
        ctx.strokeStyle = ink.text;
        ctx.strokeRect(x, y, cw, ch);
    };
    if (p.cursor) cross(p.cursor, true);
    if (p.hover) cross(p.hover, false);
    if (p.drag) {
        ctx.fillStyle = ink.accent;
        ctx.globalAlpha = 0.25;
        ctx.fillRect(p.drag.x0, p.drag.y0, p.drag.x1 - p.drag.x0, p.drag.y1 - p.drag.y0);
    }
    ctx.restore();
    if (p.mini && (l.seenX < d.keys - 1e-6 || l.seenY < d.queries - 1e-6)) drawMinimap(ctx, p);
}

/** Where the view stands in the whole map. */
export function minimapBox(l, d) {
    const side = Math.min(110, l.box.w / 3, l.box.h / 3), long = Math.max(d.keys, d.queries);
    const w = Math.max(12, (side * d.keys) / long), h = Math.max(12, (side * d.queries) / long);
    return { x: l.box.x + l.box.w - w - 8, y: l.box.y + l.box.h - h - 8, w, h };
}

function drawMinimap(ctx, p) {
    const { d, layout: l, ink, dpr, mini } = p, m = minimapBox(l, d);
    ctx.fillStyle = ink.ground;
    ctx.fillRect(m.x - 3, m.y - 3, m.w + 6, m.h + 6);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    paintCells(ctx, [mini.level], mini.colours, { x: 0, y: 0, sx: (m.w / mini.level.cols) * dpr,
        sy: (m.h / mini.level.rows) * dpr },
        { x: m.x * dpr, y: m.y * dpr, w: m.w * dpr, h: m.h * dpr });
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    ctx.strokeStyle = ink.line;
    ctx.strokeRect(m.x - 3, m.y - 3, m.w + 6, m.h + 6);
    ctx.strokeStyle = ink.text;
    ctx.lineWidth = 2;
    ctx.strokeRect(m.x + (l.x / d.keys) * m.w, m.y + (l.y / d.queries) * m.h,
        Math.max(3, (l.seenX / d.keys) * m.w), Math.max(3, (l.seenY / d.queries) * m.h));
}
