// api.js: the daemon's routes, and answers read as they arrive: a map of 64 MiB never stands in memory
// as text. All addresses are relative to the page, so a path prefix in front of it changes nothing.

const ROOT = new URL('.', document.baseURI);
const KEY = 'attnd-api-key';

export class Refused extends Error {
    constructor(status, problem) {
        super(problem.detail ?? problem.error ?? `the server answered ${status}`);
        Object.assign(this, { status, problem });
    }
}

const keyOf = () => { try { return sessionStorage.getItem(KEY); } catch { return null; } };
export const setKey = (key) => sessionStorage.setItem(KEY, key);
export const hasKey = () => Boolean(keyOf());
export const address = (path) => new URL(path, ROOT).href;

async function ask(path, options = {}) {
    const headers = { ...options.headers }, key = keyOf();
    if (key) headers.Authorization = `Bearer ${key}`;
    let reply;
    try {
        reply = await fetch(new URL(path, ROOT), { ...options, headers });
    } catch (e) {
        if (e.name === 'AbortError') throw e;
        throw new Error('The server cannot be reached. Is attnd still running?');
    }
    if (reply.ok) return reply;
    const text = await reply.text();
    let problem = {};
    try { problem = JSON.parse(text); } catch { problem = { detail: `the server answered ${reply.status} ${reply.statusText}` }; }
    throw new Refused(reply.status, problem);
}

export const getJSON = async (path) => (await ask(path)).json();

const QUOTE = 34, MARK = [...'"data":"'].map((c) => c.charCodeAt(0));
const DIGITS = new Uint8Array(256).fill(255);
[...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'].forEach((c, k) => { DIGITS[c.charCodeAt(0)] = k; });

/** JSON whose base64 tensors become bytes while it is read: {"shape":..,"dtype":..,"data":Uint8Array}. */
export class AnswerReader {
    #text = [];
    #tail = ''; // the text since the last tensor, in which its shape stands
    #seen = 0; // characters of MARK that were seen
    #out = null;
    #used = 0;
    #bits = 0;
    #held = 0; // base64 characters in #bits
    #tensors = [];
    #decoder = new TextDecoder();

    push(chunk) {
        let from = 0;
        for (let k = 0; k < chunk.length;) {
            if (this.#out) {
                k = this.#decode(chunk, k);
                if (!this.#out) from = k;
                continue;
            }
            const c = chunk[k++];
            this.#seen = c === MARK[this.#seen] ? this.#seen + 1 : c === QUOTE ? 1 : 0;
            if (this.#seen < MARK.length) continue;
            this.#keep(chunk.subarray(from, k));
            const shape = /"shape":\s*\[([\d,\s]*)\][^{}]*$/.exec(this.#tail);
            const n = shape ? shape[1].split(',').reduce((a, b) => a * Number(b), 1) : 0;
            this.#out = new Uint8Array(Math.max(16, n * 4 + 4));
            this.#used = this.#bits = this.#held = this.#seen = 0;
        }
        if (!this.#out) this.#keep(chunk.subarray(from));
    }

    #keep(bytes) {
        const text = this.#decoder.decode(bytes, { stream: true });
        this.#text.push(text);
        this.#tail = (this.#tail + text).slice(-400);
    }

    #decode(chunk, k) {
        let bits = this.#bits, held = this.#held, used = this.#used, out = this.#out;
        for (; k < chunk.length; k++) {
            const c = chunk[k];
            if (c === QUOTE) {
                if (held >= 2) out[used++] = bits >> (held === 2 ? 4 : 10);
                if (held === 3) out[used++] = (bits >> 2) & 255;
                this.#text.push(`${this.#tensors.length}"`);
                this.#tensors.push(out.subarray(0, used));
                this.#out = null;
                this.#tail = '';
                return k + 1;
            }
            const v = DIGITS[c];
            if (v === 255) continue; // "="
            bits = (bits << 6) | v;
            if (++held < 4) continue;
            if (used + 3 > out.length) { const more = new Uint8Array(out.length * 2); more.set(out); this.#out = out = more; }
            out[used++] = bits >> 16;
            out[used++] = (bits >> 8) & 255;
            out[used++] = bits & 255;
            bits = held = 0;
        }
        this.#bits = bits; this.#held = held; this.#used = used;
        return k;
    }

    end() {
        return JSON.parse(this.#text.join(''), (name, v) => (name === 'data' && typeof v === 'string' ? this.#tensors[Number(v)] : v));
    }
}

/** The tensors and options of a safetensors file. */
export function readSafetensors(buffer) {
    const view = new DataView(buffer), n = Number(view.getBigUint64(0, true));
    if (!(n > 1 && 8 + n <= buffer.byteLength)) throw new Error('this is not a safetensors file: its header does not fit');
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, n))), tensors = {}, NAMES = { F32: 'float32', F16: 'float16', BF16: 'bfloat16', F64: 'float64', I32: 'int32', I64: 'int64', BOOL: 'bool', U8: 'uint8' };
    for (const [name, t] of Object.entries(head)) {
        if (name === '__metadata__') continue;
        if (!NAMES[t.dtype]) throw new Error(`tensor ${name} is ${t.dtype}, which is not known here`);
        tensors[name] = { shape: t.shape, dtype: NAMES[t.dtype], data: new Uint8Array(buffer.slice(8 + n + t.data_offsets[0], 8 + n + t.data_offsets[1])) };
    }
    return { tensors, metadata: head.__metadata__ ?? {} };
}

/** Sends a request and reads the answer in pieces; `progress` gets the bytes so far. */
export async function post(path, body, { signal, progress } = {}) {
    const reply = await ask(path, { method: 'POST', body, signal, headers: { 'Content-Type': 'application/json', Accept: 'application/json' } });
    const stream = reply.body.getReader(), reader = new AnswerReader();
    for (let bytes = 0; ;) {
        const { done, value } = await stream.read();
        if (done) return reader.end();
        reader.push(value);
        progress?.(bytes += value.length);
    }
}
