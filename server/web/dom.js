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

/** A label on its own: its direction does not leak into the text around it. */
export const bdi = (label) => h('bdi', { dir: 'auto', textContent: label });

export const option = ([value, textContent]) => h('option', { value, textContent });

export const choose = (label, onchange, options, given = {}) =>
    h('label', {}, `${label} `, h('select', { onchange, ...given }, ...options.map(option)));

/** Replaces a select's options where they have changed, and keeps the choice. */
export function refill(select, options, value) {
    const key = JSON.stringify(options);
    if (select.filledWith !== key) {
        select.replaceChildren(...options.map(option));
        select.filledWith = key;
    }
    select.value = String(value);
}
