export type View = 'grid' | 'matrix' | 'tokens' | 'arcs' | 'compare';
export type Scale = 'absolute' | 'row' | 'head' | 'visible' | 'log';
export type Head = number | 'mean' | 'max';
export type Range = [from: number, to: number];

export interface MaskRule {
    /** Query i sees key j when j <= i + offset; null: no such limit. */
    offset?: number | null;
    /** i + shift - left <= j <= i + shift + right; -1: no limit. */
    left?: number;
    right?: number;
    /** The same of each layer. */
    windows?: { left: number; right: number }[];
    shift?: number;
    /** 1 = the key may be seen. */
    keys?: ArrayLike<number> | null;
    /** Queries from here on see nothing. */
    length?: number;
    /** 1 = may attend, besides: over queries x keys or heads x queries x keys. */
    cells?: ArrayLike<number> | null;
}

export interface AttentionData {
    /** [heads, queries, keys], [queries, keys] or [layers, heads, queries, keys]; of the last, heads are counted through all layers. */
    shape: number[];
    /** Row-major; of blocks when `pooled` is given. */
    values: Float32Array | number[] | number[][] | number[][][] | number[][][][];
    queryTokens?: string[] | null;
    keyTokens?: string[] | null;
    /** 1 = may attend: over keys, queries x keys or heads x queries x keys, or a rule. */
    mask?: ArrayLike<number> | MaskRule | null;
    /** Tokens of a square map with which another segment begins, the second sentence of a pair. */
    breaks?: number[];
    headLabels?: string[];
    title?: string;
    /** What the numbers are; 'probabilities' unless said. */
    stage?: string;
    pooled?: { block: [rows: number, columns: number]; kind?: 'max' | 'mean' };
}

export interface AttentionState {
    view: View;
    head: Head;
    selection: number[];
    query: number;
    key: number;
    locked: boolean;
    scale: Scale;
    low: number | null;
    high: number | null;
    threshold: number;
    topK: number;
    topP: number;
    hide: string;
    renormalise: boolean;
    mask: boolean;
    colormap: 'cividis' | 'viridis' | 'magma' | 'grey' | 'paper';
    pool: 'max' | 'mean';
    direction: 'from' | 'to';
    lines: 'row' | 'all';
    sort: 'index' | 'entropy' | 'first' | 'diagonal';
    other: Head;
    compare: 'side' | 'difference';
    zoom: { z: number; x: number; y: number };
}

export interface AttentionCell {
    head: Head;
    query: number;
    key: number;
    value: number;
}

export class AttentionMap extends HTMLElement {
    static define(tag?: string, registry?: CustomElementRegistry): CustomElementConstructor;
    data: AttentionData | null;
    other: AttentionData | null;
    getState(): AttentionState;
    setState(change: Partial<AttentionState>): void;
    showError(text: string): void;
    refresh(): void;
    refine(part: { head: number; queries: Range; keys: Range; values: ArrayLike<number> }): void;
    toBlob(options?: { scale?: number; exact?: boolean; type?: string }): Promise<Blob>;
    toSVG(): string;
    toTSV(): string;
    toNPY(options?: { head?: boolean }): Blob;
    toHTML(): Promise<Blob>;
}

declare global {
    interface HTMLElementTagNameMap {
        'attention-map': AttentionMap;
    }
    interface HTMLElementEventMap {
        'attention-hover': CustomEvent<AttentionCell>;
        'attention-select': CustomEvent<AttentionCell>;
        'attention-statechange': CustomEvent<AttentionState>;
        'attention-need': CustomEvent<{ head: number; queries: Range; keys: Range }>;
    }
}
