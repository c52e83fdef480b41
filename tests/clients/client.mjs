// client.mjs [URL]: sends six tokens to the demo model, prints which token each one takes most from.
// It runs in Node 18 or later, and a page imports the same file; neither needs a package. Tensors travel as
// base64, which becomes a Float32Array: the bytes are little-endian, as all machines with a browser are.

export function tensor(shape, numbers) {
    const bytes = new Uint8Array(Float32Array.from(numbers).buffer);
    let text = "";
    for (let i = 0; i < bytes.length; i += 8192) // as many arguments as a call surely takes
        text += String.fromCharCode(...bytes.subarray(i, i + 8192));
    return { shape, dtype: "float32", data: btoa(text) };
}

export function array(tensor) {
    return new Float32Array(Uint8Array.from(atob(tensor.data), (c) => c.charCodeAt(0)).buffer);
}

export async function post(url, body) {
    for (let left = 5; ; left--) {
        const answer = await fetch(url, {
            method: "POST",
            headers: { "Content-Type": "application/json" },
            body: JSON.stringify(body),
        });
        if (answer.ok)
            return answer.json();
        if (answer.status !== 503 || left === 0)
            throw new Error(`${answer.status}: ${await answer.text()}`);
        const seconds = Number(answer.headers.get("Retry-After") ?? 1);
        await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    }
}

export async function main(url, print) {
    const words = "the cat sat on the mat".split(" ");
    const x = [
        [1, 0, 0, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1],
        [1, 1, 1, 0, 1, 0, 0, 0, -1, 1, -1, -1, -1, -1, -1, -1],
        [1, 2, 4, 0, 0, 1, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1],
        [1, 3, 9, 0, 0, 0, 1, 0, 1, -1, 1, 1, -1, -1, -1, -1],
        [1, 4, 16, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1],
        [1, 5, 25, 0, 1, 0, 0, 0, -1, -1, 1, -1, -1, -1, -1, -1],
    ];
    const answer = await post(`${url}/v1/models/demo/attention`, {
        inputs_embeds: tensor([x.length, x[0].length], x.flat()),
        return_attentions: { heads: [0] },
        encoding_format: "base64",
    });
    const outputs = array(answer.outputs), attention = array(answer.attentions);
    words.forEach((word, i) => {
        const row = attention.subarray(i * words.length, (i + 1) * words.length);
        const weight = Math.max(...row);
        print(`${word} looks at ${words[row.indexOf(weight)]}: ${weight.toFixed(4)}`);
    });
    const sum = outputs.reduce((a, b) => a + b, 0);
    print(`outputs [${answer.outputs.shape}], sum ${sum.toFixed(4)}`);
}

if (globalThis.process?.argv[1]?.endsWith("client.mjs"))
    await main(process.argv[2] ?? "http://127.0.0.1:8080", console.log);
