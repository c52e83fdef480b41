// A client of the soak, as client.py is, but for what only that reads: client.mjs URL FOLDER SEED
import { readFileSync } from "node:fs";

const [url, folder, seed] = process.argv.slice(2);
const TOLERANCE = 5e-5; // as there
const WORKERS = 2;
const read = (name) => readFileSync(`${folder}/${name}`);
const cases = JSON.parse(read("cases.json")).filter((c) => c.reader === "json" || c.reader === "npy");

let state = Number(seed);
function chance() {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
}

function choose() {
    let left = chance() * cases.reduce((sum, c) => sum + c.weight, 0);
    return cases.find((c) => (left -= c.weight) < 0) ?? cases[0];
}

function floats(bytes) { // a copy, so that it begins where floats may
    return new Float32Array(Uint8Array.from(bytes).buffer);
}

function flat(value) {
    if (value.data !== undefined)
        return floats(Buffer.from(value.data, "base64"));
    return Float32Array.from(value.flat(Infinity));
}

function tensors(c, body) {
    if (c.reader === "npy")
        return [floats(body.subarray(10 + body.readUInt16LE(8)))];
    const answer = JSON.parse(body);
    return c.tensors.map((path) => flat(path.split(".").filter(Boolean).reduce((value, step) => value[step], answer)));
}

function distance(got, want) {
    let most = 0;
    for (let i = 0; i < want.length; i++) {
        const error = Math.abs(got[i] - want[i]);
        if (!(error <= most)) // NaN, too
            most = error;
    }
    return got.length === want.length ? most : NaN;
}

function judge(c, answer, body) {
    if (answer.status !== 200) {
        if (!answer.headers.get("Content-Type")?.startsWith("application/problem+json"))
            return ["lost", `${answer.status}: ${body.subarray(0, 200)}`];
        const problem = JSON.parse(body);
        return [c.status.includes(answer.status) ? "expected" : "refused", `${answer.status} ${problem.code}`];
    }
    const got = tensors(c, body);
    let nearest = Infinity;
    for (const files of c.expect) {
        const error = Math.max(...files.map((file, i) => distance(got[i], floats(read(file)))));
        if (error <= TOLERANCE)
            return ["right", error.toPrecision(2)];
        nearest = Math.min(nearest, error);
    }
    return ["wrong", `no set of weights gives this; the nearest is ${nearest} away, of [${got.map((t) => t.length)}] numbers`];
}

// A connection that was idle may have been closed, as client.py says; fetch does not tell which was.
const isStale = (e, replica) => replica === "-" && ["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"].includes(e.cause?.code);

async function ask(c) {
    const begin = performance.now(), leave = new AbortController();
    let replica = "-", outcome = ["left", "-"];
    const leaves = chance() < 0.04;
    if (leaves)
        setTimeout(() => leave.abort(), chance() * 20);
    try {
        const answer = await fetch(url + c.path, { method: c.method, headers: c.headers, body: read(c.body), signal: leave.signal });
        replica = answer.headers.get("X-Replica") ?? "-";
        const pieces = [];
        for await (const piece of answer.body) // as it comes
            pieces.push(piece);
        const body = Buffer.concat(pieces);
        try {
            outcome = judge(c, answer, body);
        } catch (e) {
            outcome = ["wrong", `${answer.status}: ${e}: ${body.subarray(0, 200)}`];
        }
    } catch (e) {
        if (!leaves)
            outcome = [isStale(e, replica) ? "stale" : "lost", `${e} ${e.cause ?? ""}`];
    }
    const detail = String(outcome[1]).replace(/\s+/g, " ").slice(0, 400);
    console.log([outcome[0], c.name, (performance.now() - begin).toFixed(3), replica, detail].join("\t"));
    if (outcome[0] === "stale")
        await ask(c);
}

async function work() {
    for (;;) {
        await ask(choose());
        await new Promise((resolve) => setTimeout(resolve, chance() * 20));
    }
}

for (let i = 0; i < WORKERS; i++)
    work();
