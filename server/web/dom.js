// dom.js: elements without markup in strings: a label can never become HTML.

/** An element: properties and "on..." listeners, or attributes for what has a dash or is no property. */
export function h(tag, given = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(given)) {
        if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
        else if (name in node && !['part', 'list', 'form', 'role'].includes(name)) node[name] = value;
        else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
}

export const text = (textContent, tag = 'p', given = {}) => h(tag, { textContent, ...given });

export const button = (textContent, onclick, given = {}) =>
    h('button', { type: 'button', textContent, onclick, ...given });

/** A label on its own: its direction does not leak into the text around it. */
export const bdi = (label) => text(label, 'bdi', { dir: 'auto' });

const option = ([value, label]) => text(label, 'option', { value });

export const choose = (label, onchange, options, given = {}) =>
    h('label', {}, label, h('select', { onchange, ...given }, ...options.map(option)));

/** Replaces a select's options where they have changed, and keeps the choice. */
export function refill(select, options, value) {
    const key = JSON.stringify(options);
    if (select.filledWith !== key) {
        select.replaceChildren(...options.map(option));
        select.filledWith = key;
    }
    select.value = value;
}
