// harness.mjs: the real daemon, a real browser, and tests that are counted as cmocka's are.

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { deflateSync, inflateSync } from 'node:zlib';

export const BUILD = path.dirname(process.env.ATTND ?? 'build/attnd');
const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
const DEPS = path.resolve(process.env.WEB_DEPS ?? 'build/web-deps', 'x.js');

const tests = [], ends = [];
export const test = (name, body) => tests.push([name, body]);
export const atEnd = (f) => ends.push(f);
export const require = createRequire(DEPS);

export function equal(got, wanted, what = 'value') {
    const [a, b] = [JSON.stringify(got), JSON.stringify(wanted)];
    if (a !== b) throw new Error(`${what}: ${a?.slice(0, 600)} instead of ${b?.slice(0, 600)}`);
}

export function check(truth, what) {
    if (!truth) throw new Error(what);
}

class Skipped extends Error {}

/** Ends a test that lacks something, with the reason. */
export function skip(reason) {
    throw new Skipped(reason);
}

/** Runs what test() named, prints what tests/run.sh counts, and exits. */
export async function run() {
    let reason = CHROMIUM ? null : 'chromium is not installed';
    try { require.resolve('playwright-core'); } catch { reason ??= 'playwright-core is not installed; make deps-web says more'; }
    if (reason) {
        console.log(`skipped: browser tests: ${reason}`);
        return;
    }
    const only = process.env.TEST ? new RegExp(process.env.TEST) : /./;
    const chosen = tests.filter(([name]) => only.test(name));
    console.log(`[==========] Running ${chosen.length} test(s).`);
    const failed = [];
    for (const [name, body] of chosen) {
        console.log(`[ RUN      ] ${name}`);
        try {
            await Promise.race([body(), new Promise((_, reject) => { setTimeout(reject, 90000, new Error('still running after 90 s')).unref(); })]);
            console.log(`[       OK ] ${name}`);
        } catch (e) {
            const skipped = e instanceof Skipped;
            console.log(skipped ? `skipped: ${name}: ${e.message}` : e.stack);
            console.log(skipped ? `[  SKIPPED ] ${name}` : `[  FAILED  ] ${name}`);
            if (!skipped) failed.push(name);
        }
        await closePages();
    }
    console.log(`[==========] ${chosen.length} test(s) run.`);
    await launched?.close();
    for (const end of ends) await end();
    process.exit(failed.length ? 1 : 0);
}

/** A folder that is gone afterwards. */
export function scratch() {
    const folder = mkdtempSync(path.join(process.env.TMPDIR ?? tmpdir(), 'attnd-web-'));
    atEnd(() => rmSync(folder, { recursive: true, force: true }));
    return folder;
}

/** Starts attnd on a free port: its address, with a slash at its end. */
export async function daemon(...args) {
    const child = spawn(process.env.ATTND ?? 'build/attnd', ['serve', '--listen', '127.0.0.1:0', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '', log = '';
    child.stderr.on('data', (text) => { log += text; });
    atEnd(() => child.exitCode ?? new Promise((resolve) => { child.once('exit', resolve); child.kill('SIGTERM'); }));
    const address = await new Promise((resolve, reject) => {
        child.stdout.on('data', (text) => {
            said += text;
            const ready = /attnd ready on (http:\S+)/.exec(said);
            if (ready) resolve(`${ready[1]}/`);
        });
        child.once('exit', (code) => reject(new Error(`attnd ended with ${code}: ${log}`)));
    });
    return address;
}

/** A server of our own: handle(request, response). */
export async function server(handle) {
    const made = http.createServer(handle);
    await new Promise((resolve) => { made.listen(0, '127.0.0.1', resolve); });
    atEnd(() => { made.closeAllConnections(); made.close(); });
    return `http://127.0.0.1:${made.address().port}/`;
}

/** Everything below /prefix/ goes to the daemon without it. */
export async function proxy(target, prefix) {
    const { hostname, port } = new URL(target);
    return `${await server((request, response) => {
        if (!request.url.startsWith(prefix)) { response.writeHead(404).end(); return; }
        const onward = http.request({ hostname, port, path: request.url.slice(prefix.length - 1), method: request.method, headers: { ...request.headers, host: `${hostname}:${port}` } },
            (answer) => { response.writeHead(answer.statusCode, answer.headers); answer.pipe(response); });
        onward.on('error', () => response.destroy());
        request.pipe(onward);
    })}${prefix.slice(1)}`;
}

let launched = null, pages = [];

async function closePages() {
    for (const p of pages) await p.context().close();
    pages = [];
}

/**
 * A page of its own. Whatever it does, it must not write errors to the console, break its policy or
 * ask another origin: quiet(page) checks that, and gives what `expected` does not match.
 */
export async function open(address, options = {}) {
    launched ??= await require('playwright-core').chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
    const context = await launched.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(30000); // on a busy machine
    page.noise = [];
    page.origins = new Set([new URL(address).origin]);
    page.on('console', (m) => { if (['error', 'warning'].includes(m.type())) page.noise.push(`console: ${m.text()}`); });
    page.on('pageerror', (e) => page.noise.push(`exception: ${e.stack}`));
    page.on('request', (r) => { if (!/^(data|blob):/.test(r.url()) && !page.origins.has(new URL(r.url()).origin)) page.noise.push(`foreign request: ${r.url()}`); });
    await page.addInitScript(() => {
        window.violations = [];
        document.addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
    });
    pages.push(page);
    if (options.before) await options.before(page);
    await page.goto(address);
    return page;
}

export async function quiet(page, expected = /^$/) {
    equal(await page.evaluate(() => window.violations), [], 'violations of the policy');
    equal(page.noise.filter((text) => !expected.test(text)), [], 'noise');
}

/** Opens the viewer and waits until a map is drawn. */
export async function viewer(address, link = '', options = {}) {
    const page = await open(address + (link ? `#${link}` : ''), options);
    await drawn(page);
    return page;
}

/** Waits until there is a map and the frame that shows it. */
export async function drawn(page) {
    await page.waitForFunction(() => document.querySelector('attention-map')?.data);
    await settle(page);
}

export const settle = (page) => page.evaluate(() => new Promise((resolve) => { requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve, 30))); }));
export const setState = async (page, change) => { await page.evaluate((c) => document.querySelector('attention-map').setState(c), change); await settle(page); };
export const getState = (page) => page.evaluate(() => document.querySelector('attention-map').getState());
export const part = (page, selector) => page.locator(`attention-map ${selector}`);
export const live = (page) => part(page, '[aria-live]').evaluate((node) => node.textContent);

/** Where the middle of a cell stands on the page. */
export async function cellPoint(page, query, key) {
    // The element's own labels say where rows and columns are: hovering tells the truth, so search by it.
    const box = await part(page, '.stage').boundingBox();
    const shape = await page.evaluate(() => document.querySelector('attention-map').data.shape);
    const at = async (x, y) => {
        await page.mouse.move(x, y);
        return page.evaluate(() => new Promise((resolve) => { requestAnimationFrame(() => resolve(window.lastHover)); }));
    };
    await page.evaluate(() => {
        if (window.listening) return;
        window.listening = true;
        document.addEventListener('attention-hover', (e) => { window.lastHover = e.detail; });
    });
    if (!page.corner) {
        // The first cell from the left and top, and the size of one, by bisection over the pixels.
        const rowHit = async (y) => { await page.evaluate(() => { window.lastHover = null; }); return at(box.x + box.width / 2, y); };
        const columnHit = async (x, y) => { await page.evaluate(() => { window.lastHover = null; }); return at(x, y); };
        let top = null, left = null;
        for (let y = 2; y < box.height && !top; y += 4) { const d = await rowHit(box.y + y); if (d) top = { y: box.y + y, d }; }
        for (let x = 2; x < box.width && !left; x += 4) { const d = await columnHit(box.x + x, top.y); if (d) left = { x: box.x + x, d }; }
        let right = left.x, bottom = top.y;
        for (let x = box.x + box.width - 2; x > left.x; x -= 4) { if (await columnHit(x, top.y)) { right = x; break; } }
        for (let y = box.y + box.height - 2; y > top.y; y -= 4) { if (await columnHit(left.x, y)) { bottom = y; break; } }
        page.corner = { x: left.x, y: top.y, w: (right - left.x + 4) / shape.at(-1), h: (bottom - top.y + 4) / shape.at(-2) };
    }
    const c = page.corner;
    return { x: c.x - 2 + (key + 0.5) * c.w, y: c.y - 2 + (query + 0.5) * c.h };
}

/** The pixels of a PNG of 8-bit RGB or RGBA, as a function (x, y) -> [r, g, b, a]. */
export function readPNG(bytes) {
    equal(bytes.subarray(0, 8).toString('latin1'), '\x89PNG\r\n\x1a\n', 'signature');
    const width = bytes.readUInt32BE(16), height = bytes.readUInt32BE(20), n = { 2: 3, 6: 4 }[bytes[25]], parts = [];
    equal(bytes[24], 8, 'bits');
    for (let at = 8; at < bytes.length;) {
        const size = bytes.readUInt32BE(at);
        if (bytes.toString('latin1', at + 4, at + 8) === 'IDAT') parts.push(bytes.subarray(at + 8, at + 8 + size));
        at += 12 + size;
    }
    const raw = inflateSync(Buffer.concat(parts)), line = width * n, out = new Uint8Array(line * height);
    for (let y = 0; y < height; y++) {
        const kind = raw[y * (line + 1)];
        for (let x = 0; x < line; x++) {
            const a = x >= n ? out[y * line + x - n] : 0, b = y ? out[(y - 1) * line + x] : 0, c = x >= n && y ? out[(y - 1) * line + x - n] : 0;
            const p = a + b - c, nearest = Math.abs(p - a) <= Math.abs(p - b) && Math.abs(p - a) <= Math.abs(p - c) ? a : Math.abs(p - b) <= Math.abs(p - c) ? b : c;
            out[y * line + x] = raw[y * (line + 1) + 1 + x] + [0, a, b, (a + b) >> 1, nearest][kind];
        }
    }
    return { width, height, at: (x, y) => [...out.subarray((Math.round(y) * width + Math.round(x)) * n, (Math.round(y) * width + Math.round(x)) * n + n), 255].slice(0, 4) };
}

const CRC = Int32Array.from({ length: 256 }, (_, n) => { for (let k = 0; k < 8; k++) n = n & 1 ? (n >>> 1) ^ 0xedb88320 : n >>> 1; return n; });

/** The same picture in at most 256 colours that it uses much and that differ: small enough for a repository. */
export function smallPNG(bytes) {
    const { width, height, at } = readPNG(bytes), counts = new Map(), lines = [];
    const pixels = Array.from({ length: width * height }, (_, k) => { const [r, g, b] = at(k % width, Math.floor(k / width)); return (r << 16) | (g << 8) | b; });
    for (const c of pixels) counts.set(c, (counts.get(c) ?? 0) + 1);
    const parts = (c) => [c >> 16, (c >> 8) & 255, c & 255], distance = (a, b) => parts(a).reduce((sum, v, n) => sum + (v - parts(b)[n]) ** 2, 0), palette = [];
    for (const [c] of [...counts].sort((a, b) => b[1] - a[1])) if (palette.length < 256 && palette.every((p) => distance(p, c) > 100)) palette.push(c);
    const nearest = new Map([...counts.keys()].map((c) => {
        const far = palette.map((p) => distance(p, c));
        return [c, far.indexOf(Math.min(...far))];
    }));
    for (let y = 0; y < height; y++) lines.push(Buffer.from([0, ...pixels.slice(y * width, (y + 1) * width).map((c) => nearest.get(c))]));
    const chunk = (name, data) => {
        const body = Buffer.concat([Buffer.from(name), data]), out = Buffer.alloc(8);
        out.writeUInt32BE(data.length);
        out.writeUInt32BE(~body.reduce((crc, v) => CRC[(crc ^ v) & 255] ^ (crc >>> 8), -1) >>> 0, 4);
        return Buffer.concat([out.subarray(0, 4), body, out.subarray(4)]);
    };
    const head = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 3, 0, 0, 0]);
    head.writeUInt32BE(width);
    head.writeUInt32BE(height, 4);
    return Buffer.concat([bytes.subarray(0, 8), chunk('IHDR', head), chunk('PLTE', Buffer.from(palette.flatMap(parts))), chunk('IDAT', deflateSync(Buffer.concat(lines), { level: 9 })), chunk('IEND', Buffer.alloc(0))]);
}

/** What a click saves, as bytes. */
export async function download(page, click) {
    const [saved] = await Promise.all([page.waitForEvent('download'), click()]);
    const chunks = [];
    for await (const chunk of await saved.createReadStream()) chunks.push(chunk);
    return { name: saved.suggestedFilename(), bytes: Buffer.concat(chunks) };
}

export async function exported(page, text) {
    await part(page, 'summary', { hasText: 'Export' }).filter({ hasText: 'Export' }).click();
    const got = await download(page, () => page.locator('attention-map').getByRole('button', { name: text, exact: true }).click());
    await page.keyboard.press('Escape');
    return got;
}

export const pictures = () => { mkdirSync(path.join(BUILD, 'pictures'), { recursive: true }); return path.join(BUILD, 'pictures'); };
