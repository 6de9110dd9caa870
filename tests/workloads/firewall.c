// The firewall of Akiyama 2018, IV.C, as a pipeline: firewall [PACKETS [TIMES [BURST [TRAIN]]]]
//
// Three threads as in the paper: RX takes packets from a port, ACL classifies them by the rules of acl.c, TX sends them
// through another port. Two rte_rings connect them. Ports are DPDK's net_af_packet on veth pairs in a network namespace
// of its own, which ends with the processes. At the other ends of the pairs another process, the tester, sends trains
// of TRAIN packets, waits until all of a train are back, and logs the latency of each: from before it is sent to the
// kernel's time of its arrival.
//
// BURST 1: each function serves one packet. More: each serves an array of up to BURST. A packet's id is the first
// eight bytes behind its UDP header. Its type is (id - 1) % 3: A, B, C. ACL classifies each TIMES times.
//
// The CPUs are two or more: RX, TX and the tester share the first, ACL has the second. Threads that find nothing to do
// yield their CPU. They go before all programs of the usual policy, if they may;
// with a real-time policy the kernel's own thread for arrived packets would never run.
//
// Truth: `item` is a packet's classification; calls receive, classify and transmit of each packet, and `outside` of
// the tester. A note `lost` counts packets that did not come back.
#define main acl_alone
#include "acl.c"
#undef main

#include <rte_ethdev.h>
#include <rte_ring.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>

#define MOST_BURST 64
#define RING 1024
#define MBUFS 4095
// A train that is not back by then has lost packets.
#define PATIENCE_S 5

struct frame {
  uint8_t dst[6], src[6];
  uint16_t ethertype;
  // IPv4 without options.
  uint8_t version, tos;
  uint16_t length, ip_id, fragment;
  uint8_t ttl, protocol;
  uint16_t ip_sum;
  uint32_t from, to;
  // UDP.
  uint16_t from_port, to_port, udp_length, udp_sum;
  uint64_t id;
  uint8_t rest[10];
} __attribute__((packed));

_Static_assert(offsetof(struct frame, id) == 42, "the id follows the headers");

enum stage { RECEIVE, CLASSIFY, TRANSMIT, STAGES };
static const char *const stage_names[STAGES] = {"receive", "classify", "transmit"};

// Takes CPU n, before other programs.
static void settle(int n) {
  struct sched_param usual = {0};
  truth_pin(n);
  sched_setscheduler(0, SCHED_OTHER, &usual);
  setpriority(PRIO_PROCESS, (id_t)truth_tid(), -20);
}

// What is known of a packet, by its id.
struct times {
  uint64_t enter[STAGES], leave[STAGES];
};

// Shared with the tester.
struct outside {
  uint32_t ready, finished, lost;
  struct {
    uint64_t sent, received;
  } packet[];
};

static uint32_t packets, times, burst, train;
static struct times *log_of;
static struct outside *outside;
static struct rte_ring *to_acl, *to_tx;
static uint32_t dropped;
static int stop;

static uint64_t id_of(const struct rte_mbuf *m) {
  return rte_pktmbuf_mtod(m, const struct frame *)->id;
}

static void stamp(struct rte_mbuf **m, uint32_t n, enum stage stage, uint64_t enter) {
  uint64_t leave = truth_now();
  for (uint32_t i = 0; i < n; i++) {
    struct times *t = &log_of[id_of(m[i])];
    t->enter[stage] = enter;
    t->leave[stage] = leave;
  }
}

// Whether it is a packet of the tester.
static int is_ours(const struct rte_mbuf *m) {
  const struct frame *f = rte_pktmbuf_mtod(m, const struct frame *);
  return m->data_len >= sizeof *f && f->ethertype == htons(ETH_P_IP) && f->id && f->id <= packets;
}

static struct key key_of(const struct rte_mbuf *m) {
  const struct frame *f = rte_pktmbuf_mtod(m, const struct frame *);
  return (struct key){f->protocol, f->from, f->to, f->from_port, f->to_port};
}

static inline __attribute__((always_inline)) void receive(struct rte_mbuf **m, uint32_t n) {
  uint64_t enter = truth_now();
  for (uint32_t i = 0; i < n; i++) {
    m[i]->l2_len = 14;
    m[i]->l3_len = 20;
    m[i]->packet_type = RTE_PTYPE_L2_ETHER | RTE_PTYPE_L3_IPV4 | RTE_PTYPE_L4_UDP;
  }
  stamp(m, n, RECEIVE, enter);
}

static inline __attribute__((always_inline)) void classify(struct rte_mbuf **m, uint32_t n) {
  uint64_t enter = truth_now();
  struct key keys[MOST_BURST];
  const uint8_t *data[MOST_BURST];
  uint32_t verdicts[MOST_BURST] = {0};
  for (uint32_t i = 0; i < n; i++) {
    keys[i] = key_of(m[i]);
    data[i] = (const uint8_t *)&keys[i];
  }
  for (uint32_t round = 0; round < times; round++)
    for (int c = 0; c < CONTEXTS; c++) {
      uint32_t results[MOST_BURST] = {0};
      rte_acl_classify(contexts[c], data, results, n, 1);
      for (uint32_t i = 0; i < n; i++)
        if (results[i]) verdicts[i] = results[i];
    }
  for (uint32_t i = 0; i < n; i++) m[i]->hash.usr = verdicts[i];
  stamp(m, n, CLASSIFY, enter);
}

static inline __attribute__((always_inline)) void transmit(struct rte_mbuf **m, uint32_t n) {
  uint64_t enter = truth_now();
  // The port frees what it has sent.
  uint64_t ids[MOST_BURST];
  for (uint32_t i = 0; i < n; i++) ids[i] = id_of(m[i]);
  for (uint32_t sent = 0; sent < n;) {
    uint16_t done = rte_eth_tx_burst(1, 0, m + sent, (uint16_t)(n - sent));
    sent += done;
    // The kernel may have to run on this CPU before there is room again.
    if (!done) sched_yield();
  }
  uint64_t leave = truth_now();
  for (uint32_t i = 0; i < n; i++) {
    log_of[ids[i]].enter[TRANSMIT] = enter;
    log_of[ids[i]].leave[TRANSMIT] = leave;
  }
}

PROBED void receive_packet(struct rte_mbuf *m) { receive(&m, 1); }
PROBED void classify_one(struct rte_mbuf *m) { classify(&m, 1); }
PROBED void transmit_packet(struct rte_mbuf *m) { transmit(&m, 1); }
PROBED void receive_burst(struct rte_mbuf **m, uint32_t n) { receive(m, n); }
PROBED void classify_burst(struct rte_mbuf **m, uint32_t n) { classify(m, n); }
PROBED void transmit_burst(struct rte_mbuf **m, uint32_t n) { transmit(m, n); }

static int is_over(void) { return __atomic_load_n(&stop, __ATOMIC_ACQUIRE); }

PROBED void put(struct rte_ring *ring, struct rte_mbuf **m, uint32_t n) {
  for (uint32_t done = 0; done < n;)
    done += rte_ring_enqueue_burst(ring, (void **)(m + done), n - done, NULL);
}

static void *receiver(void *unused) {
  (void)unused;
  settle(0);
  struct rte_mbuf *m[MOST_BURST];
  while (!is_over()) {
    uint32_t all = rte_eth_rx_burst(0, 0, m, (uint16_t)burst), n = 0;
    for (uint32_t i = 0; i < all; i++)
      if (is_ours(m[i]))
        m[n++] = m[i];
      else
        rte_pktmbuf_free(m[i]);
    if (!n) {
      sched_yield();
      continue;
    }
    burst > 1 ? receive_burst(m, n) : receive_packet(m[0]);
    put(to_acl, m, n);
  }
  return NULL;
}

static void *classifier(void *unused) {
  (void)unused;
  settle(1);
  struct rte_mbuf *m[MOST_BURST];
  while (!is_over()) {
    uint32_t all = rte_ring_dequeue_burst(to_acl, (void **)m, burst, NULL), n = 0;
    if (!all) {
      sched_yield();
      continue;
    }
    burst > 1 ? classify_burst(m, all) : classify_one(m[0]);
    for (uint32_t i = 0; i < all; i++)
      if (m[i]->hash.usr) {
        dropped++;
        rte_pktmbuf_free(m[i]);
      } else {
        m[n++] = m[i];
      }
    put(to_tx, m, n);
  }
  return NULL;
}

static void *transmitter(void *unused) {
  (void)unused;
  settle(0);
  struct rte_mbuf *m[MOST_BURST];
  while (!is_over()) {
    uint32_t n = rte_ring_dequeue_burst(to_tx, (void **)m, burst, NULL);
    if (!n)
      sched_yield();
    else
      burst > 1 ? transmit_burst(m, n) : transmit_packet(m[0]);
  }
  return NULL;
}

// The tester: another process, with sockets at the far ends of the pairs.

static void must(int holds, const char *what) {
  if (holds) return;
  perror(what);
  exit(1);
}

static int raw_socket(const char *interface, int receives) {
  int fd = socket(AF_PACKET, SOCK_RAW, 0);
  must(fd >= 0, "packet socket");
  struct sockaddr_ll to = {.sll_family = AF_PACKET,
                           .sll_protocol = htons(receives ? ETH_P_IP : 0),
                           .sll_ifindex = (int)if_nametoindex(interface)};
  int on = 1;
  struct timeval patience = {.tv_sec = PATIENCE_S};
  must(!bind(fd, (struct sockaddr *)&to, sizeof to), interface);
  must(!setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on), "SO_TIMESTAMPNS");
  must(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), "SO_RCVTIMEO");
  return fd;
}

static struct frame frame_of(uint64_t id) {
  static const uint32_t from[] = {IP(192, 168, 10, 4), IP(192, 168, 10, 4), IP(192, 168, 12, 4)};
  static const uint32_t to[] = {IP(192, 168, 11, 5), IP(192, 168, 22, 2), IP(192, 168, 22, 2)};
  uint32_t type = (id - 1) % 3;
  struct frame f = {.dst = {2, 0, 0, 0, 0, 1},
                    .src = {2, 0, 0, 0, 0, 2},
                    .ethertype = htons(ETH_P_IP),
                    .version = 0x45,
                    .length = htons(sizeof f - 14),
                    .ttl = 64,
                    .protocol = 17,
                    .from = htonl(from[type]),
                    .to = htonl(to[type]),
                    .from_port = htons(10001),
                    .to_port = htons(10002),
                    .udp_length = htons(sizeof f - 34),
                    .id = id};
  return f;
}

// Receives one packet: logs when it arrived. False where none came.
static int take(int fd) {
  struct frame f;
  char control[128];
  struct iovec to = {&f, sizeof f};
  struct msghdr msg = {.msg_iov = &to, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  ssize_t n = recvmsg(fd, &msg, 0);
  if (n < 0) return 0;
  if (n < (ssize_t)sizeof f || !f.id || f.id > packets) return take(fd);
  for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c))
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
      // The kernel's time of the arrival is of the other clock.
      struct timespec at, now;
      memcpy(&at, CMSG_DATA(c), sizeof at);
      uint64_t before = truth_now();
      clock_gettime(CLOCK_REALTIME, &now);
      uint64_t after = truth_now();
      int64_t ago = (now.tv_sec - at.tv_sec) * 1000000000ll + (now.tv_nsec - at.tv_nsec);
      outside->packet[f.id].received = before + (after - before) / 2 - (uint64_t)ago;
    }
  return 1;
}

static void test(void) {
  int out = raw_socket("far0", 0), in = raw_socket("far1", 1);
  settle(0);
  while (!__atomic_load_n(&outside->ready, __ATOMIC_ACQUIRE)) usleep(1000);
  for (uint64_t id = 1; id <= packets;) {
    uint32_t n = 0;
    for (; n < train && id <= packets; n++, id++) {
      struct frame f = frame_of(id);
      outside->packet[id].sent = truth_now();
      must(send(out, &f, sizeof f, 0) == sizeof f, "send");
    }
    while (n && take(in)) n--;
    outside->lost += n;
  }
  __atomic_store_n(&outside->finished, 1, __ATOMIC_RELEASE);
}

// The network namespace with both pairs of interfaces.
static void make_links(void) {
  must(!unshare(CLONE_NEWNET), "a network namespace");
  static const char *const commands[] = {
      "sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 2>/dev/null || true",
      "ip link add far0 type veth peer name port0 && ip link add far1 type veth peer name port1",
      "for i in far0 port0 far1 port1; do ip link set $i up || exit 1; done"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (system(commands[i])) fail("no pairs of interfaces (ip link add)", (int)i);
}

static void start_port(uint16_t port, struct rte_mempool *pool) {
  struct rte_eth_conf conf;
  memset(&conf, 0, sizeof conf);
  int rc = rte_eth_dev_configure(port, 1, 1, &conf);
  if (rc) fail("rte_eth_dev_configure", rc);
  if ((rc = rte_eth_rx_queue_setup(port, 0, 512, SOCKET_ID_ANY, NULL, pool))) fail("rte_eth_rx_queue_setup", rc);
  if ((rc = rte_eth_tx_queue_setup(port, 0, 512, SOCKET_ID_ANY, NULL))) fail("rte_eth_tx_queue_setup", rc);
  if ((rc = rte_eth_dev_start(port))) fail("rte_eth_dev_start", rc);
}

static void start_pipeline(void) {
  char *args[] = {"firewall", "--no-huge", "--no-pci", "--no-shconf", "--no-telemetry", "-l", "0", "-m", "1024",
                  "--log-level=5", "--vdev=net_af_packet0,iface=port0", "--vdev=net_af_packet1,iface=port1"};
  int rc = rte_eal_init(sizeof args / sizeof *args, args);
  if (rc < 0) fail("rte_eal_init", rc);
  struct rte_mempool *pool =
      rte_pktmbuf_pool_create("packets", MBUFS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
  if (!pool) fail("rte_pktmbuf_pool_create", rte_errno);
  if (rte_eth_dev_count_avail() != 2) fail("ports (librte-net-af-packet)", rte_eth_dev_count_avail());
  start_port(0, pool);
  start_port(1, pool);
  unsigned flags = RING_F_SP_ENQ | RING_F_SC_DEQ;
  to_acl = rte_ring_create("to_acl", RING, SOCKET_ID_ANY, flags);
  to_tx = rte_ring_create("to_tx", RING, SOCKET_ID_ANY, flags);
  if (!to_acl || !to_tx) fail("rte_ring_create", rte_errno);
  for (uint32_t i = 0; i < CONTEXTS; i++) contexts[i] = build_context(i);
}

static void write_log(void) {
  for (uint32_t id = 1; id <= packets; id++) {
    const struct times *t = &log_of[id];
    if (!outside->packet[id].received) continue;
    truth_item(id, t->leave[RECEIVE], t->enter[CLASSIFY], t->leave[CLASSIFY], t->enter[TRANSMIT]);
    for (int s = 0; s < STAGES; s++) truth_call(stage_names[s], id, t->enter[s], t->leave[s]);
    truth_call("outside", id, outside->packet[id].sent, outside->packet[id].received);
  }
  truth_note("lost", outside->lost);
  truth_write();
}

int main(int argc, char **argv) {
  packets = truth_arg(argc, argv, 1, 3000);
  times = truth_arg(argc, argv, 2, 1);
  burst = truth_arg(argc, argv, 3, 1);
  train = truth_arg(argc, argv, 4, 1);
  if (!burst || burst > MOST_BURST || !train || train > MOST_BURST) fail("BURST and TRAIN are 1 to 64", (int)burst);
  size_t size = sizeof *outside + (packets + 1) * sizeof outside->packet[0];
  outside = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  log_of = calloc(packets + 1, sizeof *log_of);
  if (outside == MAP_FAILED || !log_of) fail("memory", 0);
  make_links();
  pid_t tester = fork();
  must(tester >= 0, "fork");
  if (!tester) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    test();
    _exit(0);
  }
  start_pipeline();
  truth_init();
  prctl(PR_SET_TIMERSLACK, 1);
  pthread_t threads[STAGES];
  void *(*const starts[STAGES])(void *) = {receiver, classifier, transmitter};
  for (int s = 0; s < STAGES; s++) must(!pthread_create(&threads[s], NULL, starts[s], NULL), "pthread_create");
  __atomic_store_n(&outside->ready, 1, __ATOMIC_RELEASE);
  int status = 0;
  must(waitpid(tester, &status, 0) == tester, "waitpid");
  __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
  for (int s = 0; s < STAGES; s++) pthread_join(threads[s], NULL);
  if (status || !outside->finished) fail("the tester failed", status);
  write_log();
  printf("%u packets, %u dropped, %u lost\n", packets, dropped, outside->lost);
  return 0;
}
