// own.js: what people bring and take, loaded when they do: requests, answers and files; the request as code.

import { numbers, readSafetensors, tensor } from './request.js';

function readNPY(buffer) {
    const bytes = new Uint8Array(buffer);
    if (bytes.length < 12 || bytes[0] !== 0x93 || bytes[1] !== 0x4e) {
        throw new Error('this is not a .npy file');
    }
    const wide = bytes[6] > 1, n = wide ? new DataView(buffer).getUint32(8, true)
        : bytes[8] | (bytes[9] << 8), from = (wide ? 12 : 10) + n;
    const head = new TextDecoder().decode(bytes.subarray(wide ? 12 : 10, from));
    const kind = /'descr':\s*'([^']*)'/.exec(head)?.[1],
        shape = /'shape':\s*\(([^)]*)\)/.exec(head)?.[1].split(',').filter((s) => s.trim()).map(Number);
    const dtype = { '<f4': 'float32', '<f8': 'float64', '<f2': 'float16', '<i4': 'int32', '<i8': 'int64',
        '|b1': 'bool', '|u1': 'uint8' }[kind];
    if (!dtype || /'fortran_order':\s*True/.test(head)) {
        throw new Error(`this .npy file holds ${kind} ${/True/.test(head) ? 'in Fortran order' : ''}; ` +
            'float32, float64 or float16 in C order can be shown');
    }
    return { shape, dtype, data: bytes.slice(from) };
}

const asMap = (t, more = {}) => {
    const shape = t.shape.length > 3 ? [t.shape.slice(0, -2).reduce((a, b) => a * b, 1), ...t.shape.slice(-2)]
        : t.shape;
    return { map: { shape, values: numbers(t), ...more } };
};

/** What a file holds: {request} to be sent, or {map} to be shown as it is. */
export async function readFile(file, layer) {
    const ending = file.name.split('.').at(-1).toLowerCase();
    if (ending === 'json') return readJSON(await file.text());
    const buffer = await file.arrayBuffer();
    if (ending === 'npy') {
        const t = readNPY(buffer);
        const inputs = (t.shape.length === 2 || t.shape.length === 3) && t.shape.at(-1) === layer?.d_model;
        return inputs ? { request: { inputs_embeds: t } } : asMap(t);
    }
    if (ending === 'safetensors') {
        const { tensors, metadata } = readSafetensors(buffer);
        const read = (text) => { try { return JSON.parse(text); } catch { return undefined; } };
        const options = Object.fromEntries(Object.entries(metadata).map(([k, v]) =>
            [k, read(v)]).filter(([, v]) => v !== undefined));
        if (tensors.attentions) return asMap(tensors.attentions, tokensOf(options));
        if (tensors.inputs_embeds || tensors.query) return { request: { ...options, ...tensors } };
        const names = Object.keys(tensors);
        throw new Error(`the file holds ${names.slice(0, 4).join(', ')}${names.length > 4 ? ', …' : ''}; ` +
            'inputs_embeds, query with key and value, or attentions can be shown. ' +
            'Weights are loaded by attnd itself: attnd --model NAME=FILE');
    }
    throw new Error(`${file.name}: drop a request or an answer as .json, or tensors as .npy or .safetensors`);
}

const tokensOf = (o) => { const t = Array.isArray(o.tokens?.[0]) ? o.tokens[0] : o.tokens; return t
    ? { queryTokens: t } : {}; };

export function readJSON(text) {
    let v;
    try { v = JSON.parse(text); } catch (e) { throw new Error(`this is not JSON: ${e.message}`); }
    if (v.inputs_embeds || v.query) return { request: v };
    if (v.shape && v.values) return { map: v };
    if (v.attentions) {
        const t = Array.isArray(v.attentions) ? tensor(v.attentions)
            : { shape: v.attentions.shape, values: numbers(v.attentions) };
        // A batch's first sequence; all heads of all layers of what an encoder answers.
        const first = t.shape.length === 4 ? { shape: t.shape.slice(1),
            values: t.values.slice(0, t.values.length / t.shape[0]) } : t.shape.length === 5
            ? { shape: [t.shape[0], ...t.shape.slice(2)], values: firstOfBatch(t) } : t;
        const n = first.shape.at(-2), labels = tokensOf(v).queryTokens;
        return { map: { ...first, ...(labels?.length === n ? { queryTokens: labels } : {}) } };
    }
    throw new Error('this JSON has neither inputs_embeds nor query, and is no answer with attentions either');
}

function firstOfBatch(t) {
    const [layers, batch, ...rest] = t.shape, n = rest.reduce((a, b) => a * b, 1),
        out = new Float32Array(layers * n);
    for (let l = 0; l < layers; l++) out.set(t.values.subarray(l * batch * n, l * batch * n + n), l * n);
    return out;
}

/** What is on screen as a command or a program. w: {root, route, example, layer, head, index, key}. */
export function snippets(w) {
    const url = w.root + w.route, head = typeof w.head === 'number' ? w.head : null;
    const wanted = head === null ? { reduce_heads: w.head } : { heads: [head] };
    const change = { ...(w.layer === null ? {} : { layer: w.layer }), return_outputs: false,
        return_attentions: wanted };
    const source = w.example ? w.root + w.example : null, auth = w.key;
    const python = (v) => JSON.stringify(v).replace('false', 'False');
    const pythonKey = auth ? ', "Authorization": "Bearer " + os.environ["ATTND_API_KEY"]' : '';
    const nodeKey = auth ? ", Authorization: 'Bearer ' + process.env.ATTND_API_KEY" : '';
    const send = `curl -s${auth ? ' -H "Authorization: Bearer $ATTND_API_KEY"' : ''}`;
    const merge = `python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin) | ${python(change)}))'`;
    const first = source ? `${send} '${source}' |\n  ${merge}`
        : `# request.json: the button below saves it\n${merge} < request.json`;
    return {
        curl: `${first} |\n  ${send} '${url}' --json @-`,
        Python: `import json${auth ? ', os' : ''}, urllib.request

def call(url, body=None):
    headers = {"Content-Type": "application/json"${pythonKey}}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    return json.load(urllib.request.urlopen(request))

body = ${source ? `call("${source}")` : 'json.load(open("request.json"))'}
body.update(${python(change)})
answer = call("${url}", body)
weights = answer["attentions"]${w.index}   # [query][key]
print(weights[0])`,
        JavaScript: `const headers = { 'Content-Type': 'application/json'${nodeKey} };
const body = ${source ? `await (await fetch('${source}', { headers })).json()`
        : "JSON.parse((await import('node:fs')).readFileSync('request.json', 'utf8'))"};
Object.assign(body, ${JSON.stringify(change)});
const answer = await (await fetch('${url}', { method: 'POST', headers, body: JSON.stringify(body) })).json();
const weights = answer.attentions${w.index};   // [query][key]
console.log(JSON.stringify(weights[0]));`,
    };
}
