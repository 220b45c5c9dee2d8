/* Machine code, an ELF file, read as far as a launch depends on it. */
#include "images.h"

#include <elf.h>
#include <string.h>

enum { PARAM = 0x17, REGCOUNT = 0x2f, MAXTHREADS = 0x05, REQUIRED = 0x10, SIZED = 4 };

struct elf {
    const unsigned char *image;
    const Elf64_Ehdr *head;
    const Elf64_Shdr *sections;
    const char *names;
};

static const char *suffix(const char *name, const char *prefix) {
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) ? NULL : name + n;
}

static const Elf64_Shdr *section(const struct elf *e, const char *prefix, const char *name) {
    for (int n = 0; n < e->head->e_shnum; n++) {
        const char *rest = suffix(e->names + e->sections[n].sh_name, prefix);
        if (rest && strcmp(rest, name) == 0)
            return &e->sections[n];
    }
    return NULL;
}

static uint32_t word(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* The facts of one kernel: records of a format, a number, and a size with so many bytes. */
static void info(struct facts *f, const unsigned char *at, const unsigned char *end) {
    while (at + 4 <= end) {
        unsigned format = at[0], number = at[1], size = at[2] | (unsigned)at[3] << 8;
        const unsigned char *data = at + 4;
        at += format == SIZED ? 4 + size : 4;
        if (format != SIZED || at > end)
            continue;
        if (number == PARAM && size == 12) {
            unsigned ordinal = data[4] | (unsigned)data[5] << 8;
            if (ordinal < MAX_PARAMS) {
                f->sizes[ordinal] = word(data + 8) >> 18;
                f->count = ordinal + 1 > f->count ? ordinal + 1 : f->count;
            }
        } else if ((number == MAXTHREADS || number == REQUIRED) && size == 12) {
            f->threads = word(data) * word(data + 4) * word(data + 8);
        }
    }
}

static void registers(const struct elf *e, struct facts *f, unsigned symbol) {
    const Elf64_Shdr *s = section(e, ".nv.info", "");
    if (s == NULL)
        return;
    const unsigned char *at = e->image + s->sh_offset, *end = at + s->sh_size;
    while (at + 12 <= end) {
        unsigned size = at[2] | (unsigned)at[3] << 8;
        if (at[0] == SIZED && at[1] == REGCOUNT && size == 8 && word(at + 4) == symbol)
            f->registers = word(at + 8);
        at += at[0] == SIZED ? 4 + size : 4;
    }
}

static void kernel(const struct elf *e, struct facts **kernels, const char *name, unsigned symbol,
                   int sm) {
    struct facts *f = facts_new(kernels, name);
    const Elf64_Shdr *s = section(e, ".nv.info.", name);
    if (s)
        info(f, e->image + s->sh_offset, e->image + s->sh_offset + s->sh_size);
    registers(e, f, symbol);
    s = section(e, ".nv.shared.", name);
    unsigned reserved = sm >= 80 ? SHARED_RESERVED : 0; /* which the section counts */
    if (s)
        f->shared = s->sh_size > reserved ? (unsigned)s->sh_size - reserved : 0;
}

CUresult images_cubin(const unsigned char *image, struct facts **kernels) {
    struct elf e = {.image = image, .head = (const Elf64_Ehdr *)(const void *)image};
    if (e.head->e_machine != EM_CUDA || !e.head->e_shoff || !e.head->e_shnum)
        return CUDA_ERROR_INVALID_IMAGE;
    e.sections = (const Elf64_Shdr *)(const void *)(image + e.head->e_shoff);
    e.names = (const char *)image + e.sections[e.head->e_shstrndx].sh_offset;
    bool newer = e.head->e_ident[EI_ABIVERSION] >= 8;
    int sm = (int)(newer ? e.head->e_flags >> 8 & 0xFF : e.head->e_flags & 0xFF);
    if (sm / 10 != capability / 10 || sm > capability)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    const Elf64_Shdr *table = section(&e, ".symtab", ""), *strings = section(&e, ".strtab", "");
    if (table == NULL || strings == NULL)
        return CUDA_ERROR_INVALID_IMAGE;
    const Elf64_Sym *symbols = (const Elf64_Sym *)(const void *)(image + table->sh_offset);
    for (unsigned n = 0; n < table->sh_size / sizeof *symbols; n++) {
        const char *name = (const char *)image + strings->sh_offset + symbols[n].st_name;
        if (ELF64_ST_TYPE(symbols[n].st_info) == STT_FUNC && section(&e, ".nv.info.", name))
            kernel(&e, kernels, name, n, sm);
    }
    return 0;
}
