// encoder.mjs: a whole encoder of the BERT family with its tokeniser, small enough to be made by a test.

import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

export const LAYERS = 3, HEADS = 4, TOKENS = 1100;
const WIDTH = 16, INNER = 24;
const WORDS = '[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on mat because it was tired . dog ran ##s < > = / img'.split(' ');

/** The folder for attnd --model NAME=FOLDER; the same bytes every time. */
export function writeEncoder(folder) {
    const tensors = {}, header = {};
    let seed = 20, at = 0;
    const random = () => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return seed / 2 ** 31 - 1; };
    const add = (name, shape, by, middle = 0) => {
        tensors[name] = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, () => middle + by * random());
        header[name] = { dtype: 'F32', shape, data_offsets: [at, at += tensors[name].byteLength] };
    };
    const norm = (name) => { add(`${name}.weight`, [WIDTH], 0.2, 1); add(`${name}.bias`, [WIDTH], 0.1); };
    const linear = (name, out, width) => { add(`${name}.weight`, [out, width], 1.2); add(`${name}.bias`, [out], 0.1); };
    add('embeddings.word_embeddings.weight', [WORDS.length, WIDTH], 1);
    add('embeddings.position_embeddings.weight', [TOKENS, WIDTH], 0.5);
    add('embeddings.token_type_embeddings.weight', [2, WIDTH], 0.5);
    norm('embeddings.LayerNorm');
    for (let l = 0; l < LAYERS; l++) {
        const at = `encoder.layer.${l}`;
        for (const name of ['query', 'key', 'value']) linear(`${at}.attention.self.${name}`, WIDTH, WIDTH);
        linear(`${at}.attention.output.dense`, WIDTH, WIDTH);
        norm(`${at}.attention.output.LayerNorm`);
        linear(`${at}.intermediate.dense`, INNER, WIDTH);
        linear(`${at}.output.dense`, WIDTH, INNER);
        norm(`${at}.output.LayerNorm`);
    }
    mkdirSync(folder, { recursive: true });
    const text = Buffer.from(JSON.stringify(header)), size = Buffer.alloc(8);
    size.writeUInt32LE(text.length);
    const parts = Object.values(tensors).map((t) => Buffer.from(t.buffer));
    writeFileSync(path.join(folder, 'model.safetensors'), Buffer.concat([size, text, ...parts]));
    writeFileSync(path.join(folder, 'vocab.txt'), WORDS.map((w) => `${w}\n`).join(''));
    writeFileSync(path.join(folder, 'tokenizer_config.json'), JSON.stringify({ tokenizer_class: 'BertTokenizer', do_lower_case: true }));
    writeFileSync(path.join(folder, 'config.json'), JSON.stringify({
        model_type: 'bert', hidden_size: WIDTH, num_attention_heads: HEADS, num_hidden_layers: LAYERS, intermediate_size: INNER,
        hidden_act: 'gelu', vocab_size: WORDS.length, max_position_embeddings: TOKENS, type_vocab_size: 2, layer_norm_eps: 1e-12,
    }));
    return folder;
}
