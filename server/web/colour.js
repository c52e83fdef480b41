// colour.js: colour maps, and the table that turns the bits of a float32 into a colour.

// Anchors of the maps of matplotlib: cividis (Nunez, Anderton, Renslow 2018), viridis, magma.
const ANCHORS = {
    cividis: '00224e 123570 3b496c 575d6d 707173 8a8678 a59c74 c3b369 e1cc55 fee838',
    viridis: '440154 482878 3e4989 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725',
    magma: '000004 180f3d 440f76 721f81 9e2f7f cd4071 f1605d fd9668 feca8d fcfdbf',
    grey: '000000 ffffff',
    paper: 'ffffff 000000',
};
const COLD = '0a3d7c 2f74b8 78b0dc', WARM = 'eeaa6a cc6a1c 7f3a06'; // blue and orange: for differences
export const COLOUR_MAPS = Object.keys(ANCHORS);

const hex = (text) => [0, 2, 4].map((i) => parseInt(text.slice(i, i + 2), 16));
const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // as ImageData has it
export const css = (packed) => `rgb(${packed & 255},${(packed >> 8) & 255},${(packed >> 16) & 255})`;

/** "rgb(1, 2, 3)" as numbers. */
export function channels(text) {
    const n = (text.match(/[\d.]+/g) ?? [255, 255, 255]).map(Number);
    return text.startsWith('color(') ? n.slice(0, 3).map((v) => Math.round(v * 255)) : n.slice(0, 3);
}

/** 256 packed colours. "diverging" has the ground in its middle, "ramp" goes from it to `ink`. */
export function palette(name, ground, ink) {
    const made = { diverging: () => [...COLD.split(' ').map(hex), channels(ground),
        ...WARM.split(' ').map(hex)], ramp: () => [channels(ground), channels(ink)] };
    const stops = made[name]?.() ?? (ANCHORS[name] ?? ANCHORS.cividis).split(' ').map(hex);
    return Uint32Array.from({ length: 256 }, (_, i) => {
        const at = (i / 255) * (stops.length - 1), k = Math.min(stops.length - 2, Math.floor(at));
        return pack(stops[k].map((v, c) => Math.round(v + (stops[k + 1][c] - v) * (at - k))));
    });
}

export const packed = (text) => pack(channels(text).map(Math.round));

/** Where a value stands between the limits, 0 to 1. */
export function position(value, limits) {
    const { low, high, log } = limits;
    const t = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    return t > 0 ? Math.min(1, t) : 0; // NaN too
}

/** The value at a position. */
export const valueAt = (t, { low, high, log }) => (log ? low * (high / low) ** t : low + (high - low) * t);

export const colourOf = (value, limits, lut) => lut[Math.round(position(value, limits) * 255)];

/**
 * A colour for every float32 by its first 17 bits (sign, exponent, 8 of the mantissa: finer than 256
 * colours): drawing a cell is then one look-up, whatever the scale. NaN is transparent, so the hatch
 * behind shows; -Infinity, what a filter left out, has the colour `blank`.
 */
export function table(limits, lut, blank) {
    const colours = new Uint32Array(1 << 17), word = new Uint32Array(1),
        value = new Float32Array(word.buffer);
    const { low, high, log } = limits, by = 255 / (log ? Math.log(high / low) : high - low);
    const end = low < 0 && !log ? 1 << 17
        : 1 << 16; // where no limit is negative all that is has the first colour
    colours.fill(lut[0], end);
    for (let i = 0; i < end; i++) {
        word[0] = (i << 15) | 0x4000;
        const v = value[0];
        const t = log ? Math.log(v / low) * by : (v - low) * by;
        colours[i] = v !== v ? 0 : lut[t > 0 ? Math.min(255, Math.round(t)) : 0];
    }
    colours[0] = colours[1 << 16] = lut[Math.round(position(0, limits) * 255)];
    colours.fill(0, 0x1ff01); // NaN with a sign
    colours[0x1ff00] = blank;
    return colours;
}

/** Round numbers between the limits, for the colour bar and for axes. */
export function ticks(low, high, about) {
    const step = 10 ** Math.floor(Math.log10((high - low) / about || 1));
    const by = [1, 2, 5, 10].map((m) => m * step).find((s) => (high - low) / s <= about) ?? step * 10;
    const out = [];
    const most = high + by * 1e-6;
    for (let v = Math.ceil(low / by - 1e-9) * by; v <= most; v += by) out.push(Number(v.toPrecision(12)));
    return out;
}
