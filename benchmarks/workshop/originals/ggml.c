/* ggml's graph allocator (ggml-alloc.c), from its sources, as a planner: FILE OUT reads lifetimes as
   id,lower,upper,size and writes id,offset. Its functions are static, so the file is included.
   SPDX-License-Identifier: Apache-2.0 */
#include <ggml-alloc.c>

struct block {
  long long id, lower, upper, size;
  struct buffer_address address;
};

/* What ggml-alloc.c calls outside of its own code; the linker drops its other functions. */
void ggml_abort(char const* file, int line, char const* text, ...) {
  fprintf(stderr, "%s\n", text);
  exit(1);
}
void ggml_log_internal(enum ggml_log_level level, char const* text, ...) { fputs(text, stderr); }

static int by_begin(void const* a, void const* b) {
  struct block const *const x = a, *const y = b;
  if (x->lower != y->lower) return x->lower < y->lower ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

static int by_end(void const* a, void const* b) {
  struct block const *const x = *(struct block* const*)a, *const y = *(struct block* const*)b;
  return x->upper < y->upper ? -1 : x->upper > y->upper;
}

int main(int count, char** arguments) {
  FILE* const in = fopen(arguments[1], "r");
  size_t capacity = 1024, n = 0;
  struct block* blocks = malloc(capacity * sizeof *blocks);
  char line[256];
  fgets(line, sizeof line, in);
  for (; fgets(line, sizeof line, in) != NULL; ++n) {
    if (n == capacity) blocks = realloc(blocks, (capacity *= 2) * sizeof *blocks);
    struct block* const one = &blocks[n];
    sscanf(line, "%lld,%lld,%lld,%lld", &one->id, &one->lower, &one->upper, &one->size);
  }
  qsort(blocks, n, sizeof *blocks, by_begin);
  struct block** const ends = malloc(n * sizeof *ends);
  for (size_t i = 0; i < n; ++i) ends[i] = &blocks[i];
  qsort(ends, n, sizeof *ends, by_end);
  struct ggml_dyn_tallocr* const planner = ggml_dyn_tallocr_new(64, SIZE_MAX);
  struct ggml_tensor tensor = {0};
  size_t ended = 0;
  for (size_t i = 0; i < n; ++i) {
    for (; ends[ended]->upper <= blocks[i].lower; ++ended)
      ggml_dyn_tallocr_free_bytes(planner, ends[ended]->address, ends[ended]->size);
    blocks[i].address = ggml_dyn_tallocr_alloc(planner, blocks[i].size, &tensor);
  }
  FILE* const out = fopen(arguments[2], "w");
  fputs("id,offset\n", out);
  for (size_t i = 0; i < n; ++i)
    fprintf(out, "%lld,%zu\n", blocks[i].id, blocks[i].address.offset);
  return fclose(out);
}
