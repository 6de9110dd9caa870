// The firewall of Akiyama 2018, IV.C, on DPDK's librte_acl: acl [PACKETS [TIMES]]
//
// 50,000 rules for one pair of networks, all ports of Table III that fit (the paper's own product
// is ten times that), in 150 contexts of 334, which is one trie each: stock librte_acl does not
// split these rules itself. Packets of type A, B and C (Table IV) in turn; none matches a rule, but
// they follow the tries three, two and one key parts deep. The packet's type is the item's kind:
// 0 is A, 1 is B, 2 is C. Each is classified TIMES times in one item, once unless given.
#include "truth.h"

#include <arpa/inet.h>
#include <rte_acl.h>
#include <rte_eal.h>

#define RULES 50000
#define RULES_PER_CONTEXT 334
#define CONTEXTS ((RULES + RULES_PER_CONTEXT - 1) / RULES_PER_CONTEXT)
#define DST_PORTS 750
#define IP(a, b, c, d) ((uint32_t)(a) << 24 | (b) << 16 | (c) << 8 | (d))

// The five-tuple as it is in a packet, in network byte order.
struct key {
  uint8_t protocol;
  uint32_t src, dst;
  uint16_t src_port, dst_port;
} __attribute__((packed));

enum field { PROTOCOL, SRC, DST, SRC_PORT, DST_PORT, FIELDS };

// input_index groups what a trie reads in one step of four bytes.
#define FIELD(f, member, kind, index)                                          \
  [f] = {.type = RTE_ACL_FIELD_TYPE_##kind, .size = sizeof((struct key *)0)->member, \
         .field_index = f, .input_index = index, .offset = offsetof(struct key, member)}
static const struct rte_acl_field_def fields[FIELDS] = {
    FIELD(PROTOCOL, protocol, BITMASK, 0), FIELD(SRC, src, MASK, 1), FIELD(DST, dst, MASK, 2),
    FIELD(SRC_PORT, src_port, RANGE, 3),   FIELD(DST_PORT, dst_port, RANGE, 3)};

RTE_ACL_RULE_DEF(rule, FIELDS);

struct packet {
  struct item item;
  struct key key;
};

static struct rte_acl_ctx *contexts[CONTEXTS];

static void fail(const char *what, int code) {
  fprintf(stderr, "acl: %s: %d\n", what, code);
  exit(1);
}

// The n-th rule of Table III.
static struct rule rule_number(uint32_t n) {
  struct rule r;
  memset(&r, 0, sizeof r);
  r.data.category_mask = 1;
  r.data.priority = 1;
  r.data.userdata = n + 1;
  uint16_t src_port = (uint16_t)(1 + n / DST_PORTS), dst_port = (uint16_t)(1 + n % DST_PORTS);
  r.field[SRC].value.u32 = IP(192, 168, 10, 0), r.field[SRC].mask_range.u32 = 24;
  r.field[DST].value.u32 = IP(192, 168, 11, 0), r.field[DST].mask_range.u32 = 24;
  r.field[SRC_PORT].value.u16 = r.field[SRC_PORT].mask_range.u16 = src_port;
  r.field[DST_PORT].value.u16 = r.field[DST_PORT].mask_range.u16 = dst_port;
  return r;
}

static struct rte_acl_ctx *build_context(uint32_t number) {
  static struct rule rules[RULES_PER_CONTEXT];
  uint32_t count = 0;
  for (uint32_t n = number * RULES_PER_CONTEXT; n < RULES && count < RULES_PER_CONTEXT; n++)
    rules[count++] = rule_number(n);
  char name[16];
  snprintf(name, sizeof name, "part%u", number);
  struct rte_acl_param param = {.name = name,
                                .socket_id = SOCKET_ID_ANY,
                                .rule_size = RTE_ACL_RULE_SZ(FIELDS),
                                .max_rule_num = RULES_PER_CONTEXT};
  struct rte_acl_ctx *context = rte_acl_create(&param);
  if (!context) fail("rte_acl_create", (int)number);
  int rc = rte_acl_add_rules(context, (const struct rte_acl_rule *)rules, count);
  if (rc) fail("rte_acl_add_rules", rc);
  struct rte_acl_config config = {.num_categories = 1, .num_fields = FIELDS};
  memcpy(config.defs, fields, sizeof fields);
  if ((rc = rte_acl_build(context, &config))) fail("rte_acl_build", rc);
  return context;
}

// One item: is the packet dropped by a rule?
PROBED uint32_t classify_packet(struct packet *p, uint32_t times) {
  p->item.enter_ns = truth_now();
  const uint8_t *key = (const uint8_t *)&p->key;
  uint32_t verdict = 0;
  while (times--)
    for (int i = 0; i < CONTEXTS; i++) {
      uint32_t result = 0;
      rte_acl_classify(contexts[i], &key, &result, 1, 1);
      if (result) verdict = result;
    }
  p->item.leave_ns = truth_now();
  return verdict;
}

static void start_dpdk(void) {
  cpu_set_t all;
  int cpu = 0;
  if (!sched_getaffinity(0, sizeof all, &all))
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &all)) cpu++;
  char core[16];
  snprintf(core, sizeof core, "%d", cpu);
  char *args[] = {"acl", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-l", core,
                  "-m",  "1024",      "--log-level=5"};
  int rc = rte_eal_init(sizeof args / sizeof *args, args);
  if (rc < 0) fail("rte_eal_init", rc);
}

int main(int argc, char **argv) {
  uint32_t packets = truth_arg(argc, argv, 1, 3000), times = truth_arg(argc, argv, 2, 1);
  start_dpdk();
  for (uint32_t i = 0; i < CONTEXTS; i++) contexts[i] = build_context(i);
  const struct key types[] = {
      {17, htonl(IP(192, 168, 10, 4)), htonl(IP(192, 168, 11, 5)), htons(10001), htons(10002)},
      {17, htonl(IP(192, 168, 10, 4)), htonl(IP(192, 168, 22, 2)), htons(10001), htons(10002)},
      {17, htonl(IP(192, 168, 12, 4)), htonl(IP(192, 168, 22, 2)), htons(10001), htons(10002)},
  };
  truth_init();
  uint32_t dropped = 0;
  for (uint32_t i = 0; i < packets; i++) {
    struct packet p = {.item = {.id = i + 1, .kind = i % 3, .name = "packet"}, .key = types[i % 3]};
    uint64_t before = truth_now();
    dropped += classify_packet(&p, times) != 0;
    truth_item(p.item.id, before, p.item.enter_ns, p.item.leave_ns, truth_now());
  }
  truth_write();
  printf("%u packets, %u dropped\n", packets, dropped);
  return 0;
}
