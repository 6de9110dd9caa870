// Does what a program can do to tools that read it: hostile FOLDER [MILLISECONDS]
// Makes invalid binaries in FOLDER and runs code in each, truncates them while they are mapped, writes an endless perf
// map of garbage, and maps and unmaps code all the time on another thread.
#include "truth.h"

#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#define PAGE 4096
#define LIARS 6

// mov %edi,%ecx; 1: dec %ecx; jnz 1b; ret
static const unsigned char code[] = {0x89, 0xf9, 0xff, 0xc9, 0x75, 0xfc, 0xc3};

typedef void (*spin)(unsigned);
static spin jitted, in_liar[LIARS];
static int liar[LIARS];
static volatile int stop;

static void section(Elf64_Shdr *s, unsigned type, uint64_t offset, uint64_t size, unsigned link, uint64_t entry) {
  *s = (Elf64_Shdr){.sh_name = 1, .sh_type = type, .sh_offset = offset, .sh_size = size, .sh_link = link,
                    .sh_entsize = entry, .sh_addralign = 1};
}

// A file with code in its second page, section headers in its third, and after that whatever the headers claim.
static int make_liar(const char *folder, int which) {
  char path[512];
  snprintf(path, sizeof path, "%s/liar%d.so", folder, which);
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0755);
  if (fd < 0)
    exit(3);
  unsigned char page[3 * PAGE] = {0};
  Elf64_Ehdr *elf = (Elf64_Ehdr *)page;
  memcpy(elf->e_ident, ELFMAG "\2\1\1", 7);
  elf->e_type = ET_DYN;
  elf->e_machine = EM_X86_64;
  elf->e_version = 1;
  elf->e_ehsize = sizeof *elf;
  elf->e_phoff = sizeof *elf;
  elf->e_phentsize = sizeof(Elf64_Phdr);
  elf->e_phnum = 1;
  elf->e_shoff = 2 * PAGE;
  elf->e_shentsize = sizeof(Elf64_Shdr);
  elf->e_shnum = 6;
  elf->e_shstrndx = 3;
  *(Elf64_Phdr *)(page + sizeof *elf) = (Elf64_Phdr){
      .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = PAGE, .p_vaddr = PAGE, .p_filesz = PAGE, .p_memsz = PAGE};
  memcpy(page + PAGE, code, sizeof code);
  Elf64_Shdr *sections = (Elf64_Shdr *)(page + 2 * PAGE);
  uint64_t length = sizeof page;
  section(&sections[1], SHT_PROGBITS, PAGE, PAGE, 0, 0);
  section(&sections[3], SHT_STRTAB, 2 * PAGE + 1024, 512, 0, 0);
  memcpy(page + 2 * PAGE + 1024, "\0.symtab\0\033[31mevil\nname", 24);
  switch (which) {
  case 0: // more sections than there are bytes
    elf->e_shnum = 0;
    sections[0].sh_size = 1ull << 36;
    length = 1ull << 40;
    break;
  case 1: // 4 GiB of symbols, and names as many, in a file without content
    section(&sections[2], SHT_SYMTAB, 4 * PAGE, 4ull << 30, 4, sizeof(Elf64_Sym));
    section(&sections[4], SHT_STRTAB, 8ull << 30, 4ull << 30, 0, 0);
    length = 1ull << 34;
    break;
  case 2: // symbols of 4 GiB each, over one another, with names behind the end
    section(&sections[2], SHT_SYMTAB, 2 * PAGE + 1536, 100 * sizeof(Elf64_Sym), 3, sizeof(Elf64_Sym));
    for (int n = 0; n < 100; n++)
      ((Elf64_Sym *)(page + 2 * PAGE + 1536))[n] =
          (Elf64_Sym){.st_name = n < 50 ? 9 : 1u << 30, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1,
                      .st_value = PAGE + n, .st_size = 4ull << 30};
    break;
  case 3: // sections that lie behind the end, and link to themselves
    for (int n = 1; n < 6; n++)
      section(&sections[n], n % 2 ? SHT_SYMTAB : SHT_DYNSYM, UINT64_MAX - 64 * n, UINT64_MAX / n, n, n);
    break;
  case 4: // nothing is of any size
    for (int n = 1; n < 6; n++)
      section(&sections[n], n, 2 * PAGE, 0, n + 1, 0);
    elf->e_phentsize = 1;
    break;
  default: // cut to its code while it is in use, see main
    section(&sections[2], SHT_SYMTAB, 16 * PAGE, 4096 * sizeof(Elf64_Sym), 4, sizeof(Elf64_Sym));
    section(&sections[4], SHT_STRTAB, 64 * PAGE, 4096, 0, 0);
    length = 128 * PAGE;
  }
  if (write(fd, page, sizeof page) != sizeof page || ftruncate(fd, length))
    exit(3);
  in_liar[which] = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, PAGE);
  return fd;
}

static int make_map(void) {
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  dprintf(fd, "%lx 40 jitted\033]0;evil\007\n%lx ffffffffffffffff x\n\xff\xfe\nzz\n", (unsigned long)jitted, 1ul);
  if (fd < 0 || ftruncate(fd, 1ll << 40))
    exit(3);
  return fd;
}

static void *churn(void *unused) {
  while (!stop) {
    for (int n = 0; n < LIARS; n++) {
      char *at = mmap(NULL, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, liar[n], PAGE);
      ((spin)at)(2000);
      munmap(at, PAGE);
    }
  }
  return unused;
}

__attribute__((noinline)) void noisy(unsigned n) {
  for (volatile unsigned i = 0; i < n; i++)
    ;
}

PROBED void handle(struct item *it) {
  noisy(40000);
  jitted(40000);
  in_liar[it->id % LIARS](80000);
}

int main(int argc, char **argv) {
  if (argc < 2)
    return 2;
  jitted = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy((void *)jitted, code, sizeof code);
  for (int n = 0; n < LIARS; n++)
    liar[n] = make_liar(argv[1], n);
  int map = make_map();
  pthread_t thread;
  pthread_create(&thread, NULL, churn, NULL);
  uint64_t end = truth_now() + truth_arg(argc, argv, 2, 1500) * 1000000ull;
  for (uint64_t id = 1; truth_now() < end; id++) {
    struct item it = {.id = id, .name = "\033[2J\nevil"};
    handle(&it);
    // Truncated while a symbolizer has it mapped, and extended again.
    if (ftruncate(liar[LIARS - 1], id % 2 ? 2 * PAGE : 128 * PAGE))
      return 3;
  }
  stop = 1;
  pthread_join(thread, NULL);
  char path[64];
  snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
  unlink(path);
  close(map);
  return 0;
}
