// attention-map.js: import this and <attention-map> is there.

import { AttentionMap } from './element.js';

AttentionMap.base = new URL('.', import.meta.url);
AttentionMap.define();

export { AttentionMap };
