// Functions with the names that C++ can give.
#include <cstddef>
#include <cstdlib>
#include <cstdio>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>
#include <functional>

#define OWN __attribute__((noinline, noclone, used))
volatile long sink;

namespace {
OWN void handle(long n) { sink += n; }
struct Hidden {
  long n;
  OWN explicit Hidden(long start) : n(start) { sink += n; }
  OWN ~Hidden() { sink -= n; }
  OWN void serve(unsigned long by) { sink += n + by; }
  OWN long operator()(int a, const std::string &b) const { return sink += a + b.size() + n; }
};
} // namespace

namespace shop {
namespace {
OWN long inner(unsigned a, unsigned long b) { return sink += a + b; }
} // namespace

enum class Kind { first, second };

struct Money {
  long cents;
  OWN Money operator+(const Money &other) const { sink += 1; return {cents + other.cents}; }
  OWN Money &operator=(long to) { cents = to; sink += to; return *this; }
  OWN bool operator==(const Money &other) const { sink += 1; return cents == other.cents; }
  OWN bool operator<(const Money &other) const { sink += 1; return cents < other.cents; }
  OWN Money operator%(const Money &by) const { sink += 2; return {cents % by.cents}; }
  OWN long operator[](int digit) const { return sink += digit; }
  OWN Money *operator->() { sink += 3; return this; }
  OWN long operator,(int other) { return sink += other; }
  OWN explicit operator bool() const { sink += 1; return cents != 0; }
  OWN operator unsigned long() const { return sink += cents; }
  OWN operator std::string() const { sink += 4; return std::to_string(cents); }
  OWN static void *operator new(std::size_t size) { sink += size; return std::malloc(size); }
  OWN static void operator delete(void *at) { sink += 1; std::free(at); }
  OWN static void *operator new[](std::size_t size) { sink += size; return std::malloc(size); }
  OWN static void operator delete[](void *at) { sink += 1; std::free(at); }
  OWN long value() const & { return sink += cents; }
  OWN long value() && { return sink -= cents; }
  OWN long share(const volatile int *with, int const *const *and_with) volatile { return sink += *with + **and_with; }
};
OWN std::ostream &operator<<(std::ostream &out, const Money &money) { sink += money.cents; return out; }
OWN Money operator""_eur(unsigned long long cents) { sink += cents; return {static_cast<long>(cents)}; }

struct Order {
  std::map<std::string, int> lines;
  OWN Order(const std::map<std::string, int> &from) : lines(from) { sink += lines.size(); }
  OWN Order(std::initializer_list<std::string> names) { for (auto &it : names) lines[it] = 1; sink += 2; }
  OWN virtual ~Order() { sink -= lines.size(); }
  OWN virtual std::string text(unsigned short width, short by, long long far, unsigned long long farther) const
  { return std::to_string(sink += width + by + far + farther); }
  OWN std::string name() const { sink += 1; return "order"; }
  OWN void send(void (*how)(int, const char *), const std::vector<std::pair<int, std::string>> &what)
  { how(static_cast<int>(what.size()), "x"); }
};

template <class Key, class Value> struct Store {
  std::map<Key, Value> rows;
  OWN void put(const Key &key, Value value) { rows[key] = value; sink += 1; }
  template <class Other> OWN Other convert(Other with) const { sink += rows.size(); return with; }
  OWN operator Value() const { return Value(); }
  struct Row { OWN long touch(Store<Key, Value> *in) { return sink += in->rows.size(); } };
};

template <class T> OWN T largest(const std::vector<T> &of) { T most = of.front(); for (auto &it : of) if (most < it) most = it; sink += 1; return most; }
template <class A, unsigned long N, bool Really, char Letter> OWN long counted(A a) { return sink += a + N + Really + Letter; }
template <Kind K> OWN long by_kind(long n) { return sink += n + static_cast<int>(K); }
template <class... Each> OWN long many(Each... each) { return sink += sizeof...(each); }
template <class F> OWN long call(F &&f) { return f(1); }

OWN void process(const std::string &name) { sink += name.size(); }
OWN void process(std::string &&name, std::unique_ptr<int> by) { sink += name.size() + *by; }
OWN void process(const char *name) { sink += *name; }
OWN long nothing() { return sink += 1; }
OWN long any(const char *format, ...) { return sink += *format; }
OWN long array(const int (&of)[4], int (*at)[3]) { return sink += of[0] + (*at)[1]; }
OWN std::string tagged(int n) { sink += n; return "x"; }
OWN long member(long Money::*which, long (Money::*how)(int) const, const Money &of) { return sink += of.*which + (of.*how)(1); }
OWN void deferred(std::function<void(std::string)> what) { what("x"); }

OWN long with_lambda(long n)
{
  auto add = [n](int by) __attribute__((noinline, used)) { return sink += n + by; };
  auto say = [](const std::string &text) __attribute__((noinline, used)) { return sink += text.size(); };
  return add(1) + say("abc") + call([n](long by) __attribute__((noinline)) { return sink += by + n; });
}
} // namespace shop

extern "C" OWN long plain_c(int n, const char *text) { return sink += n + *text; }
static OWN long local(long n) { return sink += n; }

int main(int argc, char **argv)
{
  using namespace shop;
  const long rounds = argc > 1 ? std::atol(argv[1]) : 1;
  for (long round = 0; round < rounds; round++) {
    handle(round);
    Hidden hidden(round);
    hidden.serve(2);
    hidden(1, "b");
    inner(1, 2);
    Money a{5}, b{6};
    int one = 1; const int *to = &one;
    a = 7;
    sink += (a + b).cents + (a == b) + (a < b) + (a % b).cents + a[1] + a->cents + (a, 4) + bool(a) + static_cast<unsigned long>(a);
    sink += std::string(a).size() + a.value() + Money{1}.value() + a.share(to, &to);
    Money *made = new Money{1}, *several = new Money[2];
    delete made;
    delete[] several;
    std::ostringstream out;
    out << a << 5_eur;
    const std::map<std::string, int> lines = {{"x", 1}};
    Order *order = new Order(lines);
    Order list = {"a", "b"};
    sink += order->text(1, 2, 3, 4).size() + list.name().size();
    order->send([](int, const char *) { sink += 1; }, {});
    delete order;
    Store<std::string, int> store;
    store.put("a", 1);
    sink += static_cast<int>(store) + store.convert(2.5) + store.convert(3ul);
    Store<std::string, int>::Row().touch(&store);
    sink += largest(std::vector<int>{1, 2}) + largest<std::string>({"a"}).size() + counted<short, 5, true, 'a'>(1) + by_kind<Kind::second>(2);
    sink += many(1, 'a', "b") + many(std::string("a"), 1.0f);
    process("abc"); process(std::string("abc")); process(std::string("abc"), std::make_unique<int>(1));
    const std::string constant = "abc"; process(constant);
    nothing(); any("x", 1); int four[4] = {1}, three[3] = {1}; array(four, &three);
    tagged(1); member(&Money::cents, &Money::operator[], a); deferred([](std::string) { sink += 1; });
    with_lambda(round); plain_c(1, "x"); local(3);
  }
  std::printf("%ld\n", sink);
}
