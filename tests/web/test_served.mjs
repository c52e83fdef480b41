// What of the viewer is served, to whom, and out of what it is made.

import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { BUILD, check, daemon, drawn, equal, open, part, proxy, quiet, run, scratch, test, viewer } from './harness.mjs';

const address = await daemon();
const CAT = 'model=demo&ex=1-cat-on-the-mat';
const SERVED = ['', ...readdirSync('server/web').filter((f) => /\.(js|css|svg|png)$/.test(f)).map((f) => `ui/${f}`)];

test('all_that_is_served_is_less_than_60_kB_as_gzip', async () => {
    const page = await viewer(address);
    const loaded = await page.evaluate(() => performance.getEntriesByType('resource').map((e) => e.name).filter((u) => u.includes('/ui/')));
    equal(loaded.filter((u) => !SERVED.includes(u.slice(address.length))), [], 'files that this test does not count');
    let bytes = 0;
    for (const name of SERVED) {
        const reply = await fetch(address + name, { method: 'HEAD', headers: { 'Accept-Encoding': 'gzip' } });
        equal([reply.status, reply.headers.get('content-encoding')], [200, 'gzip'], name);
        bytes += Number(reply.headers.get('content-length'));
    }
    console.log(`    ${SERVED.length} files, ${bytes} bytes`);
    check(bytes <= 60000, `${bytes} bytes as gzip`);
});

test('it_is_built_without_node_npm_or_a_network', async () => {
    const tools = path.join(scratch(), 'bin'), out = path.join(scratch(), 'build');
    mkdirSync(tools);
    for (const name of readdirSync('/usr/bin')) {
        if (!/^(node|npm|npx|corepack|yarn|curl|wget|git)/.test(name)) symlinkSync(`/usr/bin/${name}`, path.join(tools, name));
    }
    const make = ['env', '-i', `PATH=${tools}`, 'make', '-s', `VARIANT=${out}`, `${out}/assets_data.o`];
    let alone = ['unshare', '-rn']; // no network at all, where this machine lets us
    try { execFileSync(alone[0], [...alone.slice(1), 'true'], { stdio: 'ignore' }); } catch { alone = []; }
    if (!alone.length) console.log('skipped: a build in a namespace without a network: unshare -rn is not allowed');
    execFileSync('/usr/bin/env', [...alone, ...make], { stdio: 'pipe' });
    const made = (folder) => readFileSync(path.join(folder, 'assets_data.c'), 'utf8').replaceAll(folder, '');
    equal(made(out) === made(BUILD), true, 'the same bytes as in this build');
});

test('switched_off_it_is_not_there', async () => {
    const off = await daemon('--set', 'ui.enabled=false');
    for (const name of SERVED) equal((await fetch(off + name)).status, 404, name);
    equal((await fetch(`${off}v1/models`)).status, 200, 'the API is');
});

test('it_works_behind_a_prefix', async () => {
    const page = await viewer(await proxy(address, '/any/prefix/'), CAT);
    check(page.url().includes('/any/prefix/#'), page.url());
    equal(await page.evaluate(() => document.querySelector('attention-map').data.shape), [6, 12, 12]);
    await quiet(page);
});

test('it_asks_for_the_key_in_words_and_keeps_it_to_itself', async () => {
    const file = path.join(scratch(), 'keys'), KEY = 'a-key-of-some-length';
    writeFileSync(file, `${KEY}\n`, { mode: 0o600 });
    const locked = await daemon('--set', `auth.keys_file=${file}`), asked = [];
    for (const name of SERVED) equal((await fetch(locked + name)).status, 200, `${name} is for everybody`);
    equal((await fetch(`${locked}v1/models`)).status, 401, 'the API is not');
    const page = await open(locked, { before: (p) => p.on('request', (r) => asked.push(r)) });
    await page.waitForSelector('#key:visible');
    check((await page.innerText('#locked')).includes('This server wants a key'), await page.innerText('#locked'));
    equal(await page.evaluate(() => document.activeElement.id), 'key');
    await page.fill('#key', 'wrong');
    await page.keyboard.press('Enter');
    await part(page, '[role=alert]', { hasText: 'does not take this key' }).waitFor();
    await page.fill('#key', KEY);
    await page.click('#unlock');
    await drawn(page);
    check(await page.isHidden('#locked'), 'nothing is asked any more');
    await page.click('#code');
    const code = await page.textContent('#snippet');
    check(!code.includes(KEY) && code.includes('ATTND_API_KEY'), 'the code names a variable');
    await page.reload();
    await drawn(page);
    check((await fetch(`${locked}v1/models`, { headers: { Authorization: `Bearer ${KEY}` } })).ok, 'the key is the right one');
    const api = asked.filter((r) => r.url().includes('/v1/')), last = await api.at(-1).allHeaders();
    equal(last.authorization, `Bearer ${KEY}`);
    equal(asked.filter((r) => r.url().includes(KEY) || r.postData()?.includes(KEY)).length, 0, 'requests with the key in their address or body');
    check(!page.url().includes(KEY), page.url());
    equal(await page.evaluate((key) => [Object.values(localStorage), document.cookie, Object.values(sessionStorage).includes(key)], KEY), [[], '', true]);
    equal(await page.evaluate(() => document.querySelector('#key').value), '');
    const other = await open(locked); // another tab knows nothing of it
    await other.waitForSelector('#key:visible');
    await quiet(page, /status of 401/);
    await quiet(other, /status of 401/);
});

await run();
