/* weights.h: whatever opens as a weight file must be whole. */
#ifndef TESTS_WEIGHTS_H
#define TESTS_WEIGHTS_H

/* Opens `name` in fuzz_folder(), NULL = the folder itself, and reads every tensor in both ways. */
void weights_try(const char *name);

#endif
