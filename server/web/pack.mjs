// pack.mjs: what `npm pack` adds to the sources: the element as one classic script, and the licence.

import { copyFileSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { bundle } from './save.js';

const here = (name) => new URL(name, import.meta.url);

if (process.argv[2] === '--clean') {
    for (const name of ['standalone.js', 'LICENSE']) rmSync(here(name), { force: true });
} else {
    const list = /const MODULES = (\[.*?\]);/s.exec(readFileSync(here('element.js'), 'utf8'))[1];
    const names = JSON.parse(list.replaceAll("'", '"'));
    writeFileSync(here('standalone.js'), bundle(names.map((name) => [name, readFileSync(here(`${name}.js`), 'utf8')])));
    copyFileSync(here('../../LICENSE'), here('LICENSE'));
}
