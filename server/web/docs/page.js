// Shows openapi.json, the document beside this page. Texts enter the page as text, never as markup.

const place = new URL('openapi.json', location.href);
let api;

function make(name, attributes, ...children) {
    const e = document.createElement(name);
    for (const [key, value] of Object.entries(attributes ?? {})) {
        if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
        else e.setAttribute(key, value);
    }
    e.append(...children.flat(Infinity).filter((c) => c != null));
    return e;
}

// `code` is all of Markdown that the document's texts use within a paragraph.
function prose(text) {
    return (text ?? '')
        .split('\n\n')
        .filter(Boolean)
        .map((paragraph) =>
            make(
                'p',
                {},
                paragraph.split('`').map((part, i) => (i % 2 ? make('code', {}, part) : part)),
            ),
        );
}

function resolve(node) {
    while (node?.$ref)
        node = {
            ...node.$ref
                .slice(2)
                .split('/')
                .reduce((at, key) => at[key], api),
            ...without(node),
        };
    return node;
}

function without({ $ref, ...rest }) {
    return rest;
}

const nameOf = (ref) => ref.slice(ref.lastIndexOf('/') + 1);

// JSON with short arrays and objects on one line.
function pretty(value, indent = '') {
    const flat = spaced(value);
    if (flat.length + indent.length <= 96 || value === null || typeof value !== 'object') return flat;
    const deeper = indent + '  ';
    const list = Array.isArray(value);
    const items = list
        ? value.map((v) => deeper + pretty(v, deeper))
        : Object.entries(value).map(([k, v]) => `${deeper}${JSON.stringify(k)}: ${pretty(v, deeper)}`);
    return `${list ? '[' : '{'}\n${items.join(',\n')}\n${indent}${list ? ']' : '}'}`;
}

function spaced(value) {
    if (Array.isArray(value)) return `[${value.map(spaced).join(', ')}]`;
    if (value === null || typeof value !== 'object') return JSON.stringify(value);
    const members = Object.entries(value).map(([k, v]) => `${JSON.stringify(k)}: ${spaced(v)}`);
    return members.length ? `{ ${members.join(', ')} }` : '{}';
}

// --- types ---

// What a schema takes, in words; schemas with members of their own become links.
function typeOf(schema) {
    if (schema.$ref) {
        const target = resolve(schema);
        const name = nameOf(schema.$ref);
        return target.properties ? make('a', { href: `#type-${name}` }, name) : typeOf(without({ ...target }));
    }
    if (schema.anyOf) return join(schema.anyOf.map(typeOf), ' or ');
    if (schema.enum)
        return join(
            schema.enum.map((v) => make('code', {}, JSON.stringify(v))),
            ', ',
        );
    if ('const' in schema) return make('code', {}, JSON.stringify(schema.const));
    if (schema.type === 'array') {
        const items = resolve(schema.items ?? {});
        const several = (items.anyOf ?? items.enum ?? []).length > 1 && !items.properties;
        return several ? ['(', typeOf(schema.items), ')[]'] : [typeOf(schema.items ?? {}), '[]'];
    }
    return [].concat(schema.type ?? 'anything').join(' or ');
}

function join(parts, by) {
    const seen = new Set();
    const fresh = parts.filter((p) => {
        const text = make('span', {}, p).textContent; // where a node stands for now does not matter
        return !seen.has(text) && seen.add(text);
    });
    return fresh.flatMap((p, i) => (i ? [by, p] : [p]));
}

function fields(schema) {
    const required = new Set(schema.required ?? []);
    return table(
        ['Field', 'Type', 'Default', 'Meaning'],
        Object.entries(schema.properties).map(([name, given]) => {
            const s = resolve(given);
            return [
                make('code', {}, name),
                typeOf(given),
                'default' in s ? make('code', {}, JSON.stringify(s.default)) : required.has(name) ? 'required' : '',
                [prose(s.description), limits(s), samples(s)],
            ];
        }),
    );
}

function limits({ minimum, maximum, minItems, maxItems, pattern }) {
    const parts = [
        minimum !== undefined && `at least ${minimum}`,
        maximum !== undefined && Math.abs(maximum) < 2 ** 53 && `at most ${maximum}`,
        minItems !== undefined && (minItems === maxItems ? `${minItems} items` : `at least ${minItems} items`),
        pattern,
    ].filter(Boolean);
    return parts.length ? make('p', { class: 'faint' }, parts.join('; ')) : null;
}

function samples({ examples }) {
    return (examples ?? []).map((v) => make('p', { class: 'faint' }, 'e.g. ', make('code', {}, spaced(v))));
}

function table(heads, rows) {
    return make(
        'div',
        { class: 'wide' },
        make(
            'table',
            {},
            make(
                'thead',
                {},
                make(
                    'tr',
                    {},
                    heads.map((h) => make('th', { scope: 'col' }, h)),
                ),
            ),
            make(
                'tbody',
                {},
                rows.map((row) =>
                    make(
                        'tr',
                        {},
                        row.map((cell) => make('td', {}, cell)),
                    ),
                ),
            ),
        ),
    );
}

// --- examples ---

function say(text) {
    const status = document.getElementById('status');
    status.textContent = text;
    clearTimeout(say.timer);
    say.timer = setTimeout(() => (status.textContent = ''), 3000);
}

async function copy(text) {
    try {
        await navigator.clipboard.writeText(text);
    } catch {
        // away from localhost and without TLS there is no clipboard
        const area = make('textarea', {}, text);
        document.body.append(area);
        area.select();
        const done = document.execCommand('copy');
        area.remove();
        if (!done) return say('The browser did not allow it');
    }
    say('Copied');
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(path, parameters, type, body) {
    const filled = path.replace(/\{(\w+)\}/g, (all, name) => {
        const p = parameters.find((q) => q.name === name);
        return p?.example === undefined ? all : encodeURIComponent(p.example);
    });
    const base = new URL(api.servers?.[0]?.url ?? '.', place).href.replace(/\/$/, '');
    const send =
        body === undefined
            ? ''
            : type === 'application/json'
              ? ` --json ${quoted(pretty(body))}`
              : ` -H ${quoted(`Content-Type: ${type}`)} --data-binary @FILE`;
    return `curl -s ${quoted(base + filled)}${send}`;
}

function block(text) {
    return make('pre', { tabindex: '0' }, make('code', {}, text));
}

function media(content, show) {
    return Object.entries(content ?? {}).map(([type, m]) => {
        const given = m.schema ?? {};
        const schema = resolve(given);
        return [
            make('p', {}, make('code', {}, type), m.schema ? [': ', typeOf(given)] : null),
            schema.properties && !given.$ref ? fields(schema) : null,
            Object.entries(m.examples ?? {}).map(([name, e]) => show(type, name, e)),
        ];
    });
}

// --- operations ---

function request(op, path, parameters) {
    if (!op.requestBody) {
        return make(
            'p',
            {},
            make('button', { type: 'button', onclick: () => copy(curl(path, parameters)) }, 'Copy as curl'),
        );
    }
    const schemas = Object.values(op.requestBody.content)
        .map((m) => m.schema)
        .filter(Boolean);
    const first = schemas.map(resolve).find((s) => s.properties);
    return [
        make('h4', {}, 'Request body'),
        media(op.requestBody.content, (type, name, e) =>
            make(
                'details',
                {},
                make('summary', {}, e.summary ?? name),
                make(
                    'button',
                    { type: 'button', onclick: () => copy(curl(path, parameters, type, e.value)) },
                    'Copy as curl',
                ),
                block(pretty(e.value)),
            ),
        ),
        first ? make('details', {}, make('summary', {}, 'Fields'), fields(first)) : null,
    ];
}

function responses(op) {
    return table(
        ['Status', 'Meaning'],
        Object.entries(op.responses).map(([status, given]) => {
            const r = resolve(given);
            const headers = Object.entries(r.headers ?? {});
            return [
                make('code', {}, status),
                [
                    prose(r.description),
                    make(
                        'details',
                        {},
                        make('summary', {}, 'Answer'),
                        headers.length
                            ? make(
                                  'p',
                                  {},
                                  'Header: ',
                                  join(
                                      headers.map(([h]) => make('code', {}, h)),
                                      ', ',
                                  ),
                              )
                            : null,
                        media(r.content, (type, name, e) =>
                            block(typeof e.value === 'string' ? e.value : pretty(e.value)),
                        ),
                    ),
                ],
            ];
        }),
    );
}

function operation(path, item, method) {
    const op = item[method];
    const parameters = [...(item.parameters ?? []), ...(op.parameters ?? [])].map(resolve);
    return make(
        'section',
        { 'aria-labelledby': op.operationId },
        make(
            'h3',
            { id: op.operationId },
            make('span', { class: `method ${method}` }, method.toUpperCase()),
            ' ',
            make('code', {}, path),
        ),
        make('p', {}, make('strong', {}, op.summary ?? '')),
        prose(op.description),
        parameters.length
            ? [
                  make('h4', {}, 'Parameters'),
                  table(
                      ['Name', 'In', 'Meaning'],
                      parameters.map((p) => [
                          make('code', {}, p.name),
                          p.in,
                          [
                              prose(p.description),
                              p.example === undefined
                                  ? null
                                  : make('p', { class: 'faint' }, 'e.g. ', make('code', {}, String(p.example))),
                          ],
                      ]),
                  ),
              ]
            : null,
        request(op, path, parameters),
        make('h4', {}, 'Responses'),
        responses(op),
    );
}

function all() {
    const methods = ['get', 'put', 'post', 'delete', 'patch'];
    return Object.entries(api.paths).flatMap(([path, item]) =>
        methods.filter((m) => item[m]).map((method) => ({ path, item, method, op: item[method] })),
    );
}

function show() {
    const nav = document.getElementById('routes');
    const main = document.getElementById('content');
    const types = Object.entries(api.components.schemas).filter(([, s]) => s.properties);
    document.getElementById('version').textContent = api.info.version;
    main.replaceChildren(
        ...[make('p', {}, make('strong', {}, api.info.summary ?? '')), prose(api.info.description)].flat(),
    );
    for (const tag of api.tags) {
        const own = all().filter(({ op }) => op.tags?.includes(tag.name));
        nav.append(
            make('h2', {}, tag.name),
            make(
                'ul',
                {},
                own.map(({ path, method, op }) =>
                    make(
                        'li',
                        {},
                        make(
                            'a',
                            { href: `#${op.operationId}` },
                            make('span', { class: `method ${method}` }, method.toUpperCase()),
                            ` ${path}`,
                        ),
                    ),
                ),
            ),
        );
        main.append(
            make('h2', {}, tag.name),
            ...prose(tag.description),
            ...own.map(({ path, item, method }) => operation(path, item, method)),
        );
    }
    nav.append(
        make('h2', {}, 'types'),
        make(
            'ul',
            {},
            types.map(([name]) => make('li', {}, make('a', { href: `#type-${name}` }, name))),
        ),
    );
    main.append(
        make('h2', {}, 'types'),
        ...types.map(([name, s]) =>
            make(
                'section',
                { 'aria-labelledby': `type-${name}` },
                make('h3', { id: `type-${name}` }, name),
                prose(s.description),
                fields(s),
            ),
        ),
    );
    if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

try {
    const answer = await fetch(place);
    if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
    api = await answer.json();
    show();
} catch (e) {
    document
        .getElementById('content')
        .append(make('p', { role: 'alert' }, `openapi.json could not be shown: ${e.message}`));
}
