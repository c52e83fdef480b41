// <attention-map> by itself: in pages of other origins, as a package, and with maps that are large.

import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { check, daemon, drawn, equal, exported, open, part, quiet, require, run, scratch, server, setState, settle, skip, test, viewer } from './harness.mjs';

const address = await daemon();
const WEB = 'server/web';
let page_ = '';
const elsewhere = await server((q, r) => {
    if (q.url.startsWith('/package/')) {
        const file = path.join(packed(), q.url.slice(9));
        if (existsSync(file)) r.writeHead(200, { 'Content-Type': 'text/javascript' }).end(readFileSync(file));
        else r.writeHead(404).end();
    } else if (q.url === '/react.js') r.writeHead(200, { 'Content-Type': 'text/javascript' }).end(react());
    else if (q.url === '/') r.writeHead(200, { 'Content-Type': 'text/html' }).end(`<!doctype html><meta charset=utf-8><link rel=icon href=data:,>${page_}`);
    else r.writeHead(404).end();
});
const host = async (html, options) => { page_ = html; return open(elsewhere, options); };

let folder = null;
function packed() {
    if (folder) return folder;
    const at = scratch();
    const list = JSON.parse(execFileSync('npm', ['pack', '--json', '--silent', '--pack-destination', at], { cwd: WEB, env: { ...process.env, npm_config_update_notifier: 'false' } }));
    execFileSync('tar', ['xzf', list[0].filename.replace('@', '').replace('/', '-'), '-C', at], { cwd: at });
    folder = path.join(at, 'package');
    return folder;
}

test('other_pages_embed_it_from_a_running_daemon_in_three_lines', async () => {
    const readme = readFileSync(path.join(WEB, 'README.md'), 'utf8'), three = /```html\n(.*?)```/s.exec(readme)[1];
    equal(three.trim().split('\n').length, 3);
    const page = await host(three.replace('http://localhost:8080/', address), { before: (p) => p.origins.add(new URL(address).origin) });
    await drawn(page);
    check((await part(page, '.where').textContent()).startsWith("query 0 'the'"), 'labels');
    equal(await part(page, '.value').textContent(), '1');
    const html = await page.evaluate(async () => (await document.querySelector('attention-map').toHTML()).text());
    check(html.includes('<attention-map>'), 'a report from elsewhere');
    await quiet(page);
});

/** React as npm has it, modules of CommonJS, in one script: window.require() gives them. */
function react() {
    const modules = ['react', 'scheduler', 'react-dom', 'react-dom/client'].map((name) =>
        `${JSON.stringify(name)}: (module, exports, require, process) => {\n${readFileSync(productionOf(name))}\n}`);
    return `(() => {
        const modules = {${modules.join(',\n')}}, made = {};
        window.require = (name) => {
            if (!made[name]) {
                made[name] = { exports: {} };
                modules[name](made[name], made[name].exports, window.require, { env: { NODE_ENV: 'production' } });
            }
            return made[name].exports;
        };
    })();`;
}

function productionOf(name) {
    const [root, part] = name.split('/');
    return require.resolve(`${root}/package.json`).replace('package.json', `cjs/${[root, part].filter(Boolean).join('-')}.production.js`);
}

test('a_react_page_gives_it_properties_and_hears_its_events', async () => {
    try { productionOf('react-dom/client'); } catch { skip('react is not installed; make deps-web says more'); }
    const page = await host(`<div id=root></div><script src=react.js></script><script type=module>
        import './package/attention-map.js';
        const { createElement, useState } = require('react'), { createRoot } = require('react-dom/client');
        const maps = [{ shape: [1, 1, 2], values: [0.25, 0.75], keyTokens: ['a', 'b'] }, { shape: [2, 2, 2], values: [1, 0, 0.5, 0.5, 0, 1, 0.125, 0.875] }];
        function App() {
            const [k, setK] = useState(0), [cell, setCell] = useState(null);
            return createElement('div', null,
                createElement('button', { id: 'next', onClick: () => setK(1) }, 'next'),
                createElement('output', null, cell && JSON.stringify(cell)),
                createElement('attention-map', { data: maps[k], view: 'matrix', heads: String(k), 'onattention-select': (e) => setCell(e.detail) }));
        }
        createRoot(document.getElementById('root')).render(createElement(App));
    </script>`);
    await drawn(page);
    equal(await part(page, '.value').textContent(), '0.25');
    await part(page, '[role=application]').focus();
    await page.keyboard.press('ArrowRight');
    const heard = (cell) => page.waitForFunction((text) => document.querySelector('output').textContent === text, JSON.stringify(cell));
    await heard({ head: 0, query: 0, key: 1, value: 0.75 });
    await page.click('#next');
    await page.waitForFunction(() => document.querySelector('attention-map').data.shape[0] === 2);
    await settle(page);
    equal(await page.evaluate(() => document.querySelector('attention-map').data.shape), [2, 2, 2]);
    await part(page, '[role=application]').focus();
    await page.keyboard.press('ArrowDown');
    await heard({ head: 1, query: 1, key: 1, value: 0.875 });
    await quiet(page);
});

test('the_package_holds_what_its_manifest_names', async () => {
    const at = packed(), about = JSON.parse(readFileSync(path.join(at, 'package.json'))), files = readdirSync(at);
    for (const name of [...about.files, about.customElements, about.types, about.unpkg]) check(files.includes(path.basename(name)), `${name} is missing`);
    for (const e of Object.values(about.exports)) for (const f of typeof e === 'string' ? [e] : Object.values(e)) check(files.includes(path.basename(f)), `${f} is missing`);
    equal(about.dependencies, undefined);
    check(!files.some((f) => ['app.js', 'index.html', 'pack.mjs'].includes(f)), 'the page stays out');
    const manifest = JSON.parse(readFileSync(path.join(at, 'custom-elements.json'))), element = readFileSync(path.join(at, 'element.js'), 'utf8'), types = readFileSync(path.join(at, about.types), 'utf8');
    for (const m of manifest.modules) check(files.includes(m.path), m.path);
    const declared = manifest.modules[0].declarations[0];
    for (const m of declared.members) check(new RegExp(`\\b${m.name}\\(`).test(element) && types.includes(m.name), `${m.name} is no member`);
    const sources = files.filter((f) => f.endsWith('.js') && f !== 'standalone.js').map((f) => readFileSync(path.join(at, f), 'utf8')).join('');
    for (const e of declared.events) check(sources.includes(`'${e.name}'`) && types.includes(`'${e.name}'`), `${e.name} is no event`);
    for (const p of declared.cssParts) check(sources.includes(`part: '${p.name}'`) || sources.includes(`part('${p.name}'`), `${p.name} is no part`);
    for (const p of declared.cssProperties) check(sources.includes(`var(${p.name},`), `${p.name} is no property`);
    for (const f of files.filter((x) => x.endsWith('.js') && x !== 'standalone.js')) { // nothing that is imported is left out
        for (const m of readFileSync(path.join(at, f), 'utf8').matchAll(/from '\.\/([\w-]+\.js)'/g)) check(files.includes(m[1]), `${f} imports ${m[1]}`);
    }
    check(!readdirSync(WEB).includes('standalone.js'), 'packing leaves nothing behind');
});

test('the_class_alone_has_no_side_effects_and_the_script_alone_registers', async () => {
    const use = 'const m = document.createElement("my-map"); document.body.append(m); m.data = { shape: [1, 2], values: [0.25, 0.75] };';
    const page = await host(`<script type=module>import { AttentionMap } from './package/element.js'; window.before = customElements.get('attention-map') === undefined; AttentionMap.define('my-map'); ${use}</script>`);
    await page.waitForFunction(() => document.querySelector('my-map')?.data);
    equal(await page.evaluate(() => [window.before, customElements.get('attention-map') === undefined]), [true, true]);
    await quiet(page);
    const classic = await host('<script src=package/standalone.js></script><attention-map></attention-map><script>document.querySelector("attention-map").data = { shape: [1, 2], values: [0.25, 0.75] };</script>');
    await drawn(classic);
    equal(await part(classic, '.value').textContent(), '0.25');
    check((await exported(classic, 'HTML report, one file')).bytes.length > 50000, 'with its sources inside');
    await quiet(classic);
});

test('attributes_and_state_follow_each_other_and_events_leave_the_shadow', async () => {
    const page = await host('<script type=module>import "./package/attention-map.js";</script><attention-map view="tokens" heads="1" scale="head" colormap="magma" threshold="0.125"></attention-map>');
    await page.waitForFunction(() => customElements.get('attention-map'));
    const got = await page.evaluate(async () => {
        const map = document.querySelector('attention-map'), seen = [];
        for (const type of ['attention-hover', 'attention-select', 'attention-statechange']) document.addEventListener(type, (e) => seen.push([type, e.bubbles, e.composed, e.target === map]));
        map.data = { shape: [2, 2, 2], values: [1, 0, 0.5, 0.5, 0, 1, 0.25, 0.75], queryTokens: ['a', 'b'] };
        const s = map.getState(), first = [s.view, s.head, s.scale, s.colormap, s.threshold];
        map.setState({ view: 'matrix', scale: 'log', head: 0 });
        map.setState({ view: 'no such view', head: -1, query: 1e9 });
        const then = ['view', 'scale', 'heads'].map((a) => map.getAttribute(a));
        map.setAttribute('view', 'arcs');
        return { first, then, last: [map.getState().view, map.getState().query], seen };
    });
    equal(got.first, ['tokens', 1, 'head', 'magma', 0.125]);
    equal(got.then, ['matrix', 'log', '0']);
    equal(got.last, ['arcs', 0]);
    check(got.seen.length >= 2 && got.seen.every((e) => e[1] && e[2] && e[3]), JSON.stringify(got.seen));
    await quiet(page);
});

test('512_tokens_with_12_heads_are_shown_within_two_seconds', async () => {
    const model = path.join(scratch(), 'model'), D = 96, parts = [];
    mkdirSync(model);
    let at = 0, seed = 1;
    const head = {};
    for (const name of ['wq', 'wk', 'wv', 'wo']) {
        head[`layers.0.${name}.weight`] = { dtype: 'F32', shape: [D, D], data_offsets: [at, at += D * D * 4] };
        parts.push(Buffer.from(Float32Array.from({ length: D * D }, () => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return (seed / 2 ** 31 - 1) / 4; }).buffer));
    }
    const text = Buffer.from(JSON.stringify(head)), size = Buffer.alloc(8);
    size.writeBigUInt64LE(BigInt(text.length));
    writeFileSync(path.join(model, 'model.safetensors'), Buffer.concat([size, text, ...parts]));
    writeFileSync(path.join(model, 'config.json'), JSON.stringify({ model_type: 'attnd', d_model: D, num_heads: 12, num_kv_heads: 12, head_dim: 8 }));
    const page = await viewer(await daemon('--model', `m=${model}`));
    let best = Infinity;
    for (let k = 0; k < 3 && best > 2000; k++) {
        await page.selectOption('#example', 'generated-12');
        await page.waitForFunction(() => document.querySelector('attention-map').data?.shape[1] === 12);
        best = Math.min(best, await page.evaluate(() => new Promise((resolve) => {
            const from = performance.now(), select = document.querySelector('#example'), map = document.querySelector('attention-map');
            const look = () => (map.data?.shape[1] === 512 ? requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - from))) : requestAnimationFrame(look));
            select.value = 'generated-512';
            select.dispatchEvent(new Event('change'));
            look();
        })));
    }
    equal(await page.evaluate(() => document.querySelector('attention-map').data.shape), [12, 512, 512]);
    console.log(`    ${best} ms`);
    check(best <= 2000, `${best} ms`);
    await quiet(page);
});

test('1024_tokens_with_16_heads_are_painted_within_a_second_of_their_arrival', async () => {
    const page = await viewer(address);
    let best = Infinity;
    for (let k = 0; k < 3 && best > 1000; k++) {
        best = Math.min(best, await page.evaluate(async () => {
            const n = 1024, heads = 16, values = new Float32Array(heads * n * n), map = document.querySelector('attention-map');
            let s = 1;
            for (let i = 0; i < values.length; i++) { s = (Math.imul(s, 1664525) + 1013904223) >>> 0; values[i] = s / 2 ** 32; }
            map.setState({ view: 'matrix', head: 0 });
            const canvas = map.shadowRoot.querySelector('.pane canvas');
            const probe = Object.assign(document.createElement('canvas'), { width: 8, height: 8 }).getContext('2d', { willReadFrequently: true });
            const painted = () => { // noise, where the map before had one colour a cell
                probe.drawImage(canvas, canvas.width >> 1, canvas.height >> 1, 8, 8, 0, 0, 8, 8);
                return new Set(probe.getImageData(0, 0, 8, 8).data).size > 8;
            };
            canvas.getContext('2d').clearRect(0, 0, canvas.width, canvas.height);
            const from = performance.now();
            map.data = { shape: [heads, n, n], values };
            do await new Promise((resolve) => { requestAnimationFrame(() => setTimeout(resolve)); }); while (!painted());
            return performance.now() - from;
        }));
    }
    console.log(`    ${best} ms`);
    check(best <= 1000, `painted after ${best} ms`);
    await page.waitForFunction(() => { // all heads' pictures follow
        const { shadowRoot } = document.querySelector('attention-map');
        return [...shadowRoot.querySelectorAll('.heads canvas')].every((c) => c.width > 1);
    });
    await quiet(page);
});

/** Milliseconds of the main thread's own time in each animation frame and event while `act` runs. */
async function frames(page, act) {
    const cdp = await page.context().newCDPSession(page), events = [];
    const take = ({ value }) => events.push(...value);
    cdp.on('Tracing.dataCollected', take);
    await cdp.send('Tracing.start', { traceConfig: { includedCategories: ['devtools.timeline'] }, transferMode: 'ReportEvents' });
    await act();
    const done = new Promise((resolve) => { cdp.once('Tracing.tracingComplete', resolve); });
    await cdp.send('Tracing.end');
    await done;
    return events.filter((e) => e.name === 'FireAnimationFrame' && e.tdur).map((e) => e.tdur / 1000).sort((a, b) => a - b);
}

const held = async (page) => {
    const cdp = await page.context().newCDPSession(page);
    await cdp.send('HeapProfiler.collectGarbage');
    const u = await cdp.send('Runtime.getHeapUsage');
    return u.usedSize + (u.backingStorageSize ?? 0) + (u.embedderHeapUsedSize ?? 0);
};

test('4096_by_4096_pans_and_zooms_in_16_ms_of_script_and_three_times_its_memory', async () => {
    const page = await viewer(address), before = await held(page), T = 4096, array = T * T * 4;
    await page.evaluate((n) => {
        const v = new Float32Array(n * n);
        let s = 1;
        for (let i = 0; i < v.length; i++) { s = (Math.imul(s, 1664525) + 1013904223) >>> 0; v[i] = (s / 2 ** 32) ** 8 / 500; }
        for (let i = 0; i < n; i++) v[i * n + i] = 0.5;
        const map = document.querySelector('attention-map');
        map.setState({ view: 'matrix', head: 0 });
        map.data = { shape: [1, n, n], values: v };
    }, T);
    await page.waitForFunction(() => !document.querySelector('attention-map').shadowRoot.querySelector('.legend').textContent.includes('finer'));
    check((await part(page, '.legend').innerText()).includes('max of 8×8'), 'pooling is named');
    const times = (await held(page) - before) / array;
    console.log(`    ${times} times the array`);
    check(times <= 3, `${times} times the array`);
    const box = await part(page, '.stage').boundingBox(), x = box.x + box.width / 2, y = box.y + box.height / 2;
    await page.mouse.move(x, y);
    for (const scale of ['absolute', 'visible', 'log']) {
        await setState(page, { scale, zoom: { z: 1, x: 0, y: 0 } });
        let p95 = Infinity, most = 0;
        for (let k = 0; k < 3 && p95 > 16; k++) { // neighbours on the machine slow the caches down
            const each = await frames(page, async () => {
                for (let i = 0; i < 14; i++) { await page.mouse.wheel(0, -60); await page.waitForTimeout(18); }
                await page.mouse.down();
                for (let i = 0; i < 20; i++) { await page.mouse.move(x - i * 6, y - i * 4); await page.waitForTimeout(15); }
                await page.mouse.up();
                for (let i = 0; i < 14; i++) { await page.mouse.wheel(0, 60); await page.waitForTimeout(18); }
            });
            check(each.length > 15, `${each.length} frames`);
            [p95, most] = [each[Math.floor(each.length * 0.95)], each.at(-1)];
        }
        console.log(`    ${scale}: p95 ${p95} ms, at most ${most} ms`);
        check(p95 <= 16, `${scale}: p95 ${p95} ms, at most ${most} ms`);
    }
    await page.mouse.move(4, 4);
    await page.evaluate(() => document.querySelector('attention-map').setState({ zoom: { z: 100, x: 2000, y: 2000 }, query: 2003, key: 2003 }));
    await settle(page);
    equal(await part(page, '.value').textContent(), '0.5');
    check((await part(page, '.legend').innerText()).includes('every cell is one weight'), 'zoomed in, cells are exact');
    check(await held(page) - before <= 3 * array, 'nothing piles up');
    await quiet(page);
});

test('a_pooled_map_asks_for_exact_cells_and_shows_them', async () => {
    const page = await viewer(address);
    await page.evaluate(() => {
        const n = 3000, b = 8, m = n / b, exact = (h, i, j) => Math.fround(((i * 31 + j * 17 + h) % 997) / 997), values = new Float32Array(2 * m * m);
        for (let h = 0; h < 2; h++) for (let y = 0; y < m; y++) for (let x = 0; x < m; x++) {
            let most = 0;
            for (let i = y * b; i < y * b + b; i++) for (let j = x * b; j < x * b + b; j++) most = Math.max(most, exact(h, i, j));
            values[(h * m + y) * m + x] = most;
        }
        const map = document.querySelector('attention-map');
        window.asked = [];
        map.addEventListener('attention-need', (e) => {
            e.stopImmediatePropagation();
            const { head, queries, keys } = e.detail, out = [];
            for (let i = queries[0]; i < queries[1]; i++) for (let j = keys[0]; j < keys[1]; j++) out.push(exact(head, i, j));
            window.asked.push(e.detail);
            setTimeout(() => map.refine({ head, queries, keys, values: out }), 10);
        }, { capture: true });
        window.exact = exact;
        map.data = { shape: [2, n, n], values, pooled: { block: [b, b], kind: 'max' } };
        map.setState({ view: 'matrix', head: 1, query: 500, key: 501 });
    });
    await page.waitForFunction(() => window.asked.length);
    await page.waitForFunction(() => {
        const root = document.querySelector('attention-map').shadowRoot;
        return root.querySelector('.where').textContent.includes('query 500') && !root.querySelector('.value').textContent.includes('≤');
    });
    equal(await page.evaluate(() => Math.fround(Number(document.querySelector('attention-map').shadowRoot.querySelector('.value').textContent)) === window.exact(1, 500, 501)), true);
    check((await part(page, '.legend').innerText()).includes('max of'), 'pooling is named');
    await part(page, '[role=application]').focus();
    await page.keyboard.press('ArrowDown');
    await page.waitForFunction(() => /, rank \d+$/.test(document.querySelector('attention-map').shadowRoot.querySelector('[aria-live]').textContent));
    await page.evaluate(() => { window.asked.length = 0; document.querySelector('attention-map').setState({ zoom: { z: 40, x: 480, y: 480 } }); });
    await page.waitForFunction(() => window.asked.some((a) => a.queries[1] - a.queries[0] > 10));
    await quiet(page);
});

await run();
