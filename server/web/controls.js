// controls.js: the bar above the map: views, scales, filters, exports, help.

import { COLOUR_MAPS } from './colour.js';
import { choose, h } from './dom.js';
import { SCALE_NAMES } from './draw.js';
import { copyCell, copyRow, save } from './save.js';
import { SCALES, VIEWS } from './state.js';

const KEYS = {
    '← ↑ → ↓': 'next cell',
    'Home, End': 'first, last key of the row',
    'PgUp, PgDn': 'ten queries up, down',
    'Ctrl Home, Ctrl End': 'first, last query',
    '[ and ]': 'head before, after',
    Enter: 'pin the query, or let it go',
    '+ - 0': 'zoom in, out, all of it',
    '1 to 5': 'Grid, Matrix, Tokens, Arcs, Compare',
    '?': 'this help',
};
const MOUSE = 'Keys work while the map has the focus. ' +
    'Wheel or pinch zooms, dragging moves, shift and dragging zooms into a box; ' +
    'a click on a head chooses it, with shift it joins the selection, a double click shows it alone.';
const HONEST = 'The weights show what was mixed into a token at this layer, not why, ' +
    'and not what the model as a whole relied on.';
const UNFILTERED = { threshold: 0, topK: 0, topP: 0, hide: '', renormalise: false };

const button = (textContent, onclick, given = {}) =>
    h('button', { type: 'button', textContent, onclick, ...given });
const text = (textContent) => h('p', { textContent });

/** A button whose menu opens below it; only one is open. */
function menu(title, ...content) {
    const ontoggle = ({ target }) => {
        if (target.open) closeMenus(target.getRootNode(), (x) => x === target);
    };
    const onkeydown = ({ key, currentTarget }) => {
        if (key !== 'Escape') return;
        currentTarget.open = false;
        currentTarget.firstChild.focus();
    };
    return h('details', { ontoggle, onkeydown }, h('summary', { textContent: title }),
        h('div', { className: 'menu' }, ...content));
}

export function closeMenus(root, but) {
    for (const x of root.querySelectorAll('details[open]')) if (!but(x)) x.open = false;
}

function viewTabs({ ui, host }) {
    const to = (view) => host.setState({ view });
    const name = (view) => view[0].toUpperCase() + view.slice(1);
    ui.tabs = Object.fromEntries(VIEWS.map((view) =>
        [view, button(name(view), () => to(view), { role: 'tab' })]));
    const onkeydown = (e) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
        if (!by) return;
        const view = VIEWS.at((VIEWS.indexOf(host.getState().view) + by) % VIEWS.length);
        to(view);
        ui.tabs[view].focus();
    };
    return h('div', { className: 'tabs', part: 'tabs', role: 'tablist', 'aria-label': 'View', onkeydown },
        ...Object.values(ui.tabs));
}

/** The bar; the controls that change are kept in m.ui under the names of the state's fields. */
export function toolbar(m) {
    const { ui, host } = m, set = (name, read) => (e) => host.setState({ [name]: read(e.target) });
    const value = (t) => t.value;
    const pick = (label, name, options, read = value) => {
        const made = choose(label, set(name, read), options);
        ui[name] = made.lastChild;
        return made;
    };
    const input = (label, name, given, read = value) => {
        ui[name] = h('input', { oninput: set(name, read), ...given });
        return h('label', {}, label, ui[name]);
    };
    const number = (label, name, given) => input(label, name, { type: 'number', min: 0, ...given }, (t) =>
        Number(t.value) || 0);
    const check = (label, name) => input(label, name, { type: 'checkbox' }, (t) => t.checked);
    const file = (name, make, ending) => button(name, () => save(m, make, ending));
    const same = (list) => list.map((x) => [x, x]);

    const filter = menu('Filter',
        number('At least', 'threshold', { max: 1, step: 'any', placeholder: 'any weight' }),
        number('Top k of a row', 'topK', { step: 1, placeholder: 'all' }),
        number('Top p of a row', 'topP', { max: 1, step: 'any', placeholder: 'all' }),
        input('Hide keys', 'hide', { type: 'text', placeholder: '[CLS], the or /^\\W/' }),
        check('Renormalise what is left', 'renormalise'),
        check('Hatch masked cells', 'mask'),
        pick('Pooling of far views', 'pool', same(['max', 'mean'])),
        text('Filters change what is drawn, never the numbers in the panel.'),
        button('Clear filters', () => host.setState(UNFILTERED)));
    ui.filter = filter.firstChild;
    const files = menu('Export',
        h('div', { className: 'three' }, ...[1, 2, 4].map((scale) =>
            file(`PNG ${scale}×`, () => host.toBlob({ scale }), 'png'))),
        file('PNG, one pixel a cell', () => host.toBlob({ exact: true }), 'png'),
        file('SVG', () => host.toSVG(), 'svg'),
        file('TSV of this head', () => host.toTSV(), 'tsv'),
        h('div', { className: 'pair' },
            file('NPY, this head', () => host.toNPY({ head: true }), 'npy'),
            file('NPY, all heads', () => host.toNPY(), 'npy')),
        file('HTML report, one file', () => host.toHTML(), 'html'),
        h('div', { className: 'pair' },
            button('Copy cell', (e) => copyCell(m, e.target)),
            button('Copy row', (e) => copyRow(m, e.target))));
    const head = (t) => (t.value === 'mean' || t.value === 'max' ? t.value : Number(t.value));
    const orders = { index: 'number', entropy: 'entropy', first: 'weight on first key',
        diagonal: 'weight near diagonal' };
    ui.only = { // what is there in one view only
        grid: pick('Order by', 'sort', Object.entries(orders)),
        tokens: pick('Direction', 'direction', [['from', 'attends to'], ['to', 'attended by']]),
        arcs: pick('Lines of', 'lines', [['row', 'chosen query'], ['all', 'all in sight']]),
        compare: h('span', { className: 'bar' }, pick('A', 'head', [], head), pick('B', 'other', [], head),
            pick('Show', 'compare', [['side', 'A | B'], ['difference', 'A − B']])),
    };
    const scales = SCALES.map((x) => [x, SCALE_NAMES[x]]);
    return h('div', { className: 'bar', part: 'toolbar' }, viewTabs(m), ...Object.values(ui.only),
        h('span', { className: 'grow' }),
        pick('Scale', 'scale', scales), pick('Colours', 'colormap', same(COLOUR_MAPS)), filter, files,
        button('?', () => ui.help.showModal(), { 'aria-label': 'Help' }));
}

export function helpDialog() {
    const keys = Object.entries(KEYS).flatMap(([key, what]) =>
        [h('dt', {}, h('kbd', { textContent: key })), h('dd', { textContent: what })]);
    const help = h('dialog', { 'aria-label': 'Help' }, h('h2', { textContent: 'Keys' }), h('dl', {}, ...keys),
        text(MOUSE), text(HONEST), button('Close', () => help.close()));
    return help;
}

export function updateControls({ ui, state, data, host, empty }) {
    for (const [view, tab] of Object.entries(ui.tabs)) {
        tab.setAttribute('aria-selected', String(state.view === view));
        tab.tabIndex = state.view === view ? 0 : -1;
    }
    for (const [view, node] of Object.entries(ui.only)) node.hidden = view !== state.view || empty;
    for (const name of ['scale', 'colormap', 'sort', 'direction', 'lines',
        'compare']) ui[name].value = state[name];
    for (const name of ['threshold', 'topK', 'topP', 'hide']) {
        if (host.shadowRoot.activeElement !== ui[name]) ui[name].value = state[name]
            || ''; // not what is being typed
    }
    ui.renormalise.checked = state.renormalise;
    ui.mask.checked = state.mask;
    ui.pool.value = data?.pooled ?? state.pool;
    ui.pool.disabled = Boolean(data?.pooled);
    const active = [state.threshold, state.topK, state.topP, state.hide].filter(Boolean).length;
    if (active) ui.filter.dataset.count = active;
    else delete ui.filter.dataset.count;
}
