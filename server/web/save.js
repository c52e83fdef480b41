// save.js: what leaves the element besides pictures: tables, files, a page that needs nothing but itself.

import { count, headName, shortest, visible } from './data.js';
import { h } from './dom.js';
import { escape } from './draw.js';

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
    const { head, query, key, value } = m.detail(), { layers, queryTokens, keyTokens } = m.data;
    const name = layers > 1 ? headName(m.data, head) : head;
    const cell = { head: name, query, key, queryToken: queryTokens?.[query], keyToken: keyTokens?.[key],
        value: Number(shortest(value)) };
    copy(JSON.stringify(cell), button);
}

export function copyRow(m, button) {
    const { head, query } = m.state, tokens = m.data.keyTokens, row = m.row(head, query) ?? [];
    const line = (v, j) => `${j}\t${tokens ? visible(tokens[j], 10000) : ''}\t${shortest(v)}`;
    copy(Array.from(row, line).join('\n'), button);
}
