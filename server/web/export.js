// export.js: the map as a file: SVG, TSV, NPY, and a page that needs nothing but itself.

import { colourOf, css, valueAt } from './colour.js';
import { shortest, visible } from './data.js';
import { axisLabels } from './pane.js';

/** Version 1.0 of NumPy's format: little-endian float32, C order, header padded to 64 bytes. */
export function toNPY(values, shape) {
    let header = `{'descr': '<f4', 'fortran_order': False, 'shape': (${shape.join(', ')}${shape.length === 1 ? ',' : ''}), }`;
    header += ' '.repeat(63 - ((10 + header.length) % 64)) + '\n';
    const head = new Uint8Array(10 + header.length);
    head.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
    head.set(new TextEncoder().encode(header), 10);
    return new Blob([head, values], { type: 'application/octet-stream' });
}

const cell = (label) => visible(label, 10000);

/** One head, with labels: a line a query. */
export function toTSV(d, values) {
    const line = (i) => Array.from(values.subarray(i * d.cols, (i + 1) * d.cols), shortest).join('\t');
    const names = (tokens, n) => Array.from({ length: n }, (_, k) => (tokens ? cell(tokens[k]) : String(k)));
    const rows = d.pooled ? null : d.queryTokens, cols = d.pooled ? null : d.keyTokens;
    const q = names(rows, d.rows);
    return ['\t' + names(cols, d.cols).join('\t'), ...q.map((name, i) => `${name}\t${line(i)}`)].join('\n') + '\n';
}

const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' })[c]);

/** p: a pane as it is drawn, with {limits, lut, words, name, picture}; cells as rectangles up to 10000 of them. */
export function toSVG(p) {
    const { d, layout: l, ink } = p, { box } = l, out = [];
    const rows = Math.min(d.queries - l.y, l.seenY), cols = Math.min(d.keys - l.x, l.seenX);
    const w = cols * l.sx, height = rows * l.sy, r = (n) => Number(n.toFixed(2));
    out.push(`<svg xmlns="http://www.w3.org/2000/svg" width="${l.width}" height="${l.height + 54}" viewBox="0 0 ${l.width} ${l.height + 54}" font-family="sans-serif">`,
        `<title>${escape(p.name)}</title><rect width="100%" height="100%" fill="${ink.ground}"/>`,
        `<defs><clipPath id="c"><rect x="${r(box.x)}" y="${r(box.y)}" width="${r(w)}" height="${r(height)}"/></clipPath>`,
        `<pattern id="m" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M-1 7L7 -1" stroke="${ink.line}"/></pattern>`,
        '<linearGradient id="g">');
    for (let k = 0; k <= 16; k++) out.push(`<stop offset="${k / 16}" stop-color="${css(colourOf(valueAt(k / 16, p.full), p.limits, p.lut))}"/>`);
    out.push(`</linearGradient></defs><rect x="${r(box.x)}" y="${r(box.y)}" width="${r(w)}" height="${r(height)}" fill="url(#m)" stroke="${ink.line}"/>`,
        '<g clip-path="url(#c)" shape-rendering="crispEdges">');
    const i0 = Math.floor(l.y), i1 = Math.ceil(l.y + rows - 1e-9), j0 = Math.floor(l.x), j1 = Math.ceil(l.x + cols - 1e-9);
    if ((i1 - i0) * (j1 - j0) <= 10000 && !d.pooled) {
        const values = p.levels[0].values;
        for (let i = i0; i < i1; i++) {
            for (let j = j0; j < j1; j++) {
                const v = values[i * d.cols + j];
                if (v - v !== 0) continue; // masked: the hatch shows; left out: the ground
                out.push(`<rect x="${r(box.x + (j - l.x) * l.sx)}" y="${r(box.y + (i - l.y) * l.sy)}" width="${r(l.sx)}" height="${r(l.sy)}" fill="${css(colourOf(v, p.limits, p.lut))}"/>`);
            }
        }
    } else {
        out.push(`<image x="${r(box.x)}" y="${r(box.y)}" width="${r(w)}" height="${r(height)}" preserveAspectRatio="none" href="${p.picture()}"/>`);
    }
    out.push('</g>');
    for (const t of axisLabels(l, d)) {
        const word = t.word ? `<tspan fill="${ink.text}" font-size="12">${escape(t.word)}</tspan>` : '';
        const index = `<tspan fill="${ink.muted}" font-size="10">${t.index}</tspan>`;
        out.push(t.axis === 'query'
            ? `<text x="${r(t.x)}" y="${r(t.y + 4)}" text-anchor="end">${word ? word + ' ' : ''}${index}</text>`
            : `<text transform="translate(${r(t.x + 4)} ${r(t.y)}) rotate(${t.angle})">${index}${word ? ' ' + word : ''}</text>`);
    }
    out.push(`<rect x="${r(box.x)}" y="${l.height + 8}" width="220" height="10" fill="url(#g)"/>`);
    for (const t of [0, 0.5, 1]) {
        out.push(`<text x="${r(box.x + 220 * t)}" y="${l.height + 32}" font-size="11" fill="${ink.muted}" text-anchor="middle">${shortest(Number(valueAt(t, p.full).toPrecision(3)))}</text>`);
    }
    out.push(`<text x="${r(box.x)}" y="${l.height + 48}" font-size="11" fill="${ink.muted}">${escape(p.name)} · ${escape(p.words)}</text></svg>`);
    return out.join('\n');
}

/**
 * Modules as one classic script. Each becomes a function's body; the last one's exports are returned.
 * Our modules import by name from each other only, and export declarations only.
 */
export function bundle(modules) {
    const parts = modules.map(([name, source]) => {
        const names = [...source.matchAll(/^export (?:const|function\*?|class|async function) (\w+)/gm)].map((m) => m[1]);
        const body = source.replace(/^import \{([^}]*)\} from '\.\/(\w[\w-]*)\.js';$/gm, 'const {$1} = modules["$2"];').replace(/^export (?=\w)/gm, '');
        return `modules[${JSON.stringify(name)}] = (() => {\n${body}\nreturn { ${names.join(', ')} };\n})();`;
    });
    return `(() => {\n'use strict';\nconst modules = {};\n${parts.join('\n')}\nmodules["element"].AttentionMap.modules = ${JSON.stringify(modules).replaceAll('<', '\\u003c')};\n` +
        "modules[\"element\"].AttentionMap.define();\nglobalThis.AttentionMap = modules[\"element\"].AttentionMap;\n})();";
}

async function base64(blob) {
    const url = await new Promise((resolve) => {
        const reader = new FileReader();
        reader.onload = () => resolve(reader.result);
        reader.readAsDataURL(blob);
    });
    return url.slice(url.indexOf(',') + 1);
}

// What the page of a report does at its end; it stands in the report as text.
function openReport() {
    const bytes = Uint8Array.from(atob(document.getElementById('values').textContent.trim()), (c) => c.charCodeAt(0));
    const about = JSON.parse(document.getElementById('about').textContent);
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('html,body{height:100%;margin:0}body{display:flex;flex-direction:column;padding:14px;box-sizing:border-box;background:Canvas;color-scheme:light dark}attention-map{flex:1}h1{font:600 16px system-ui,sans-serif;margin:0 0 10px}');
    document.adoptedStyleSheets = [sheet];
    new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer().then((buffer) => {
        const map = document.querySelector('attention-map');
        map.data = { ...about.data, values: new Float32Array(buffer) };
        map.setState(about.state);
    });
}

/** A page of its own: script and numbers inside, nothing fetched, openable from a disk. */
export async function toHTML(about, values, modules) {
    const packed = await new Response(new Blob([values]).stream().pipeThrough(new CompressionStream('gzip'))).blob();
    const nonce = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');
    const title = escape(visible(about.data.title || 'Attention map', 80));
    const text = JSON.stringify(about).replaceAll('<', '\\u003c');
    return new Blob([`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>${title}</title>
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'nonce-${nonce}'; img-src data: blob:">
</head><body><h1>${title}</h1><attention-map></attention-map>
<script type="application/json" id="about">${text}</script>
<script type="text/plain" id="values">`, await base64(packed), `</script>
<script nonce="${nonce}">${bundle(modules).replaceAll('</script', '<\\/script')}
(${openReport})();</script></body></html>
`], { type: 'text/html' });
}
