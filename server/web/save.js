// save.js: what leaves the element: pictures, tables, files, a page that needs nothing but itself.

import { colourOf, css, valueAt } from './colour.js';
import { count, headName, pickLevel, shortest, visible } from './data.js';
import { h } from './dom.js';
import { axisLabels, describe, drawPane, paintCells, poolWords } from './draw.js';
import { SCALES } from './state.js';

/** Version 1.0 of NumPy's format: little-endian float32, C order, header padded to 64 bytes. */
export function toNPY(values, shape) {
    const sizes = `${shape.join(', ')}${shape.length === 1 ? ',' : ''}`;
    let header = `{'descr': '<f4', 'fortran_order': False, 'shape': (${sizes}), }`;
    header += ' '.repeat(63 - ((10 + header.length) % 64)) + '\n';
    const head = new Uint8Array(10 + header.length);
    head.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
    head.set(new TextEncoder().encode(header), 10);
    return new Blob([head, values], { type: 'application/octet-stream' });
}

const cell = (label) => visible(label, 10000);

/** One head, with labels: a line a query. */
export function toTSV(d, values) {
    const names = (tokens, n) => count(n).map((k) => (tokens && !d.pooled ? cell(tokens[k]) : k));
    const rows = names(d.queryTokens, d.rows).map((name, i) =>
        [name, ...Array.from(values.subarray(i * d.cols, (i + 1) * d.cols), shortest)]);
    return [['', ...names(d.keyTokens, d.cols)], ...rows].map((row) => `${row.join('\t')}\n`).join('');
}

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/** An element of SVG: attributes, numbers rounded, and what stands inside. */
function svg(name, given, ...inside) {
    const text = (v) => (typeof v === 'number' ? Number(v.toFixed(2)) : v);
    const all = Object.entries(given).map(([k, v]) => ` ${k}="${text(v)}"`).join('');
    return `<${name}${all}>${inside.join('')}</${name}>`;
}

const WIDE = 220, round = (v) => shortest(Number(v.toPrecision(3))); // the colour bar of files, its numbers

/** A pane as describe() has it; cells are rectangles up to 10000 of them. */
function toSVG(p) {
    const { d, layout: l, ink, full, limits, lut } = p, { box, width, height, x, y, sx, sy } = l, cells = [];
    const rows = Math.min(d.queries - y, l.seenY), cols = Math.min(d.keys - x, l.seenX);
    const area = { x: box.x, y: box.y, width: cols * sx, height: rows * sy };
    const colour = (v) => css(colourOf(v, limits, lut));
    const [i0, j0] = [y, x].map(Math.floor), [i1, j1] = [y + rows, x + cols].map((n) => Math.ceil(n - 1e-9));
    const few = (i1 - i0) * (j1 - j0) <= 10000 && !d.pooled;
    for (let i = i0; few && i < i1; i++) {
        for (let j = j0; j < j1; j++) {
            const v = p.levels[0].values[i * d.cols + j];
            if (v - v !== 0) continue; // masked: the hatch shows; left out: the ground
            const at = { x: box.x + (j - x) * sx, y: box.y + (i - y) * sy };
            cells.push(svg('rect', { ...at, width: sx, height: sy, fill: colour(v) }));
        }
    }
    if (!few) cells.push(svg('image', { ...area, preserveAspectRatio: 'none', href: raster(p, area) }));
    const labels = axisLabels(l, d).map((t) => {
        const word = t.word && svg('tspan', { fill: ink.text, 'font-size': 12 }, escape(t.word));
        const index = svg('tspan', { fill: ink.muted, 'font-size': 10 }, t.index);
        const query = { x: t.x, y: t.y + 4, 'text-anchor': 'end' };
        if (t.axis === 'query') return svg('text', query, word, ' ', index);
        const transform = `translate(${(t.x + 4).toFixed(2)} ${t.y.toFixed(2)}) rotate(${t.angle})`;
        return svg('text', { transform }, index, ' ', word);
    });
    const stops = count(17).map((k) =>
        svg('stop', { offset: `${k / 16}`, 'stop-color': colour(valueAt(k / 16, full)) }));
    const small = { 'font-size': 11, fill: ink.muted };
    const numbers = [0, 0.5, 1].map((t) => svg('text', { x: box.x + WIDE * t, y: height + 32, ...small,
        'text-anchor': 'middle' }, round(valueAt(t, full))));
    const high = height + 54, about = { xmlns: 'http://www.w3.org/2000/svg', width, height: high,
        viewBox: `0 0 ${width} ${high}`, 'font-family': 'sans-serif' };
    return svg('svg', about, ['', svg('title', {}, escape(p.name)),
        svg('rect', { width, height: high, fill: ink.ground }),
        svg('clipPath', { id: 'c' }, svg('rect', area)),
        svg('pattern', { id: 'm', width: 6, height: 6, patternUnits: 'userSpaceOnUse' },
            svg('path', { d: 'M-1 7L7 -1', stroke: ink.line })),
        svg('linearGradient', { id: 'g' }, ...stops),
        svg('rect', { ...area, fill: 'url(#m)', stroke: ink.line }),
        svg('g', { 'clip-path': 'url(#c)', 'shape-rendering': 'crispEdges' }, ...cells), ...labels,
        svg('rect', { x: box.x, y: height + 8, width: WIDE, height: 10, fill: 'url(#g)' }), ...numbers,
        svg('text', { x: box.x, y: height + 48, ...small }, escape(`${p.name} · ${p.words}`)), ''].join('\n'));
}

/** The cells as a picture in an address: for maps of too many rectangles. */
function raster({ layout: l, levels, colours }, area) {
    const [w, high] = [area.width, area.height].map((n) => Math.min(4096, Math.ceil(n)));
    const canvas = h('canvas', { width: w, height: high });
    paintCells(canvas.getContext('2d'), levels, colours, l, { x: 0, y: 0, w, h: high });
    return canvas.toDataURL();
}

/**
 * Modules as one classic script. Each becomes a function's body; the last one's exports are returned.
 * Our modules import by name from each other only, and export declarations only.
 */
export function bundle(modules) {
    const parts = modules.map(([name, source]) => {
        const exported = /^export (?:const|function\*?|class|async function) (\w+)/gm;
        const names = [...source.matchAll(exported)].map((m) => m[1]);
        const body = source.replace(/^import \{([^}]*)\} from '\.\/(\w[\w-]*)\.js';$/gm,
            'const {$1} = modules["$2"];').replace(/^export (?=\w)/gm, '');
        return `modules[${JSON.stringify(name)}] = (() => {\n${body}\nreturn { ${names.join(', ')} };\n})();`;
    });
    const sources = JSON.stringify(modules).replaceAll('<', '\\u003c');
    return `(() => {
'use strict';
const modules = {};
${parts.join('\n')}
const { AttentionMap } = modules.element;
AttentionMap.modules = ${sources};
AttentionMap.define();
globalThis.AttentionMap = AttentionMap;
})();`;
}

export function base64(bytes) {
    let text = '';
    for (let k = 0; k < bytes.length; k += 0x6000) {
        text += String.fromCharCode(...bytes.subarray(k, k + 0x6000));
    }
    return btoa(text);
}

// What the page of a report does at its end; it stands in the report as text.
function openReport() {
    const bytes = Uint8Array.from(atob(document.getElementById('values').textContent.trim()), (c) =>
        c.charCodeAt(0));
    const about = JSON.parse(document.getElementById('about').textContent);
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(`html, body { height: 100%; margin: 0; } attention-map { flex: 1; }
        body { display: flex; flex-direction: column; padding: 14px; box-sizing: border-box;
            background: Canvas; color-scheme: light dark; }
        h1 { font: 600 16px system-ui, sans-serif; margin: 0 0 10px; }`);
    document.adoptedStyleSheets = [sheet];
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    new Response(plain).arrayBuffer().then((buffer) => {
        const map = document.querySelector('attention-map');
        map.data = { ...about.data, values: new Float32Array(buffer) };
        map.setState(about.state);
    });
}

/** A page of its own: script and numbers inside, nothing fetched, openable from a disk. */
export async function toHTML(about, values, modules) {
    const stream = new Blob([values]).stream().pipeThrough(new CompressionStream('gzip'));
    const packed = await new Response(stream).arrayBuffer();
    const nonce = [...crypto.getRandomValues(new Uint8Array(16))].map((b) =>
        b.toString(16).padStart(2, '0')).join('');
    const title = escape(visible(about.data.title || 'Attention map', 80));
    const text = JSON.stringify(about).replaceAll('<', '\\u003c');
    return new Blob([`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>${title}</title>
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
    content="default-src 'none'; script-src 'nonce-${nonce}'; img-src data: blob:">
</head><body><h1>${title}</h1><attention-map></attention-map>
<script type="application/json" id="about">${text}</script>
<script type="text/plain" id="values">`, base64(new Uint8Array(packed)), `</script>
<script nonce="${nonce}">${bundle(modules).replaceAll('</script', '<\\/script')}
(${openReport})();</script></body></html>
`], { type: 'text/html' });
}

/** The pane as describe() has it, with what the colour bar and the title of a file want. */
function picture(m, dpr) {
    const s = m.state, { clientWidth: width, clientHeight: height } = m.ui.panes[0].node;
    const what = s.view === 'compare' && s.compare === 'difference' ? 'difference' : 'head';
    const p = describe(m, s.head, what, { width: width || 800, height: height || 600, dpr });
    const dot = poolWords(m, pickLevel(p.levels, p.layout.sx, p.layout.sy));
    return { ...p, at: null, ground: p.ink.ground, lut: m.lut(p.diverging && 'diverging'),
        name: [m.data.title, headName(m.data, s.head)].filter(Boolean).join(' · '),
        words: p.diverging ? 'A − B' : `scale: ${SCALES[s.scale]}; ${dot}` };
}

function canvasOf(width, height, ground) {
    const canvas = h('canvas', { width: Math.round(width), height: Math.round(height) });
    const g = canvas.getContext('2d');
    g.fillStyle = ground;
    g.fillRect(0, 0, canvas.width, canvas.height);
    return g;
}

export async function pictureBlob(m, { scale = 1, exact = false, type = 'image/png' }) {
    const p = picture(m, scale), { layout: l, ground, full, ink } = p, [{ rows, cols, bw, bh }] = p.levels;
    let g = null;
    if (exact) {
        g = canvasOf(cols, rows, ink.line);
        const cells = { x: 0, y: 0, sx: 1 / bw, sy: 1 / bh };
        paintCells(g, p.levels.slice(0, 1), p.colours, cells, { x: 0, y: 0, w: cols, h: rows });
    } else if (m.state.view === 'arcs') {
        const { map, arcs } = m.ui.panes[0];
        g = canvasOf(arcs.width * scale, arcs.height * scale, ground);
        g.drawImage(map, 0, 0, g.canvas.width, g.canvas.height);
    } else {
        g = canvasOf(l.width * scale, (l.height + 44) * scale, ground);
        drawPane(g, p);
        const { x } = l.box, y = l.height + 8;
        g.drawImage(m.ui.legend.bar, x, y, WIDE, 10);
        Object.assign(g, { fillStyle: ink.muted, font: `11px ${ink.font}`, textBaseline: 'alphabetic',
            textAlign: 'left' });
        const said = `${round(full.low)} to ${round(full.high)} · ${visible(p.name, 80)} · ${p.words}`;
        g.fillText(said, x, y + 26);
    }
    return new Promise((resolve) => { g.canvas.toBlob(resolve, type); });
}

export const pictureSVG = (m) => toSVG(picture(m, 1));

export function report(m, modules) {
    const plain = (_, v) => (ArrayBuffer.isView(v) ? Array.from(v) : v);
    const data = JSON.parse(JSON.stringify({ ...m.given, values: undefined }, plain));
    return toHTML({ data, state: m.state }, m.data.values, modules);
}

const fileName = (text) => String(text).replace(/[^\p{L}\p{N}._-]+/gu, '-').slice(0, 60);

/** Gives the browser a file to keep. */
export function offer(name, content, type) {
    const blob = content instanceof Blob ? content : new Blob([content], { type });
    const link = h('a', { href: URL.createObjectURL(blob), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

export async function save(m, make, ending) {
    const head = headName(m.data, m.state.head);
    const name = `${fileName(m.data.title || 'attention')}-${fileName(head)}.${ending}`;
    try {
        offer(name, await make(), ending === 'svg' ? 'image/svg+xml' : 'text/tab-separated-values');
    } catch (e) {
        m.failure = `The export failed: ${e.message}`;
        m.refresh();
    }
}

/** Copies, and says on the button whether that went well. */
export async function copy(text, button) {
    const before = button.textContent;
    try {
        await navigator.clipboard.writeText(text);
        button.textContent = 'Copied';
    } catch {
        button.textContent = 'The browser refused';
    }
    setTimeout(() => { button.textContent = before; }, 1500);
}

export function copyCell(m, button) {
    const { head, query, key, value } = m.detail(), { queryTokens, keyTokens } = m.data;
    const cell = { head, query, key, queryToken: queryTokens?.[query], keyToken: keyTokens?.[key],
        value: Number(shortest(value)) };
    copy(JSON.stringify(cell), button);
}

export function copyRow(m, button) {
    const { head, query } = m.state, tokens = m.data.keyTokens, row = m.row(head, query) ?? [];
    const line = (v, j) => `${j}\t${tokens ? visible(tokens[j], 10000) : ''}\t${shortest(v)}`;
    copy(Array.from(row, line).join('\n'), button);
}
