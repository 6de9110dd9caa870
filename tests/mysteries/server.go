// A server with one hidden cause: see README.md. Items run on goroutines locked to their thread, like those that call C
// or hold thread-local data.
package main

import (
	"bufio"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	THREADS = iota
	POOL
)
const (
	CPU = iota
	LOCK
	ALLOCATOR
	FAULTS
	READ
	NEIGHBOUR
	DEPENDENCY
	QUEUE
	CACHE
	CALLEE
	NOTHING
)
const (
	SHAPE     = @SHAPE@
	CAUSE     = @CAUSE@
	WORKERS   = @WORKERS@
	PERIOD_NS = @PERIOD_NS@
	RUN_NS    = @RUN_NS@
	SEED      = uint64(@SEED@)
	SLOW_PPM  = @SLOW_PPM@
	KIND      = @KIND@
	EXTRA     = @EXTRA@
	BURST     = @BURST@
	LENGTHS   = @LENGTHS@ // items are of so many lengths in turn and come at equal times; 0: by chance
	PINNED    = @PINNED@
	DROP      = @DROP@ != 0
	MAX_ITEMS = RUN_NS/PERIOD_NS*2 + 100000
)

type request struct {
	id      uint64
	kind    uint32
	size    uint32
	slow    uint32
	step    uint32
	begin   uint64
	causeNs uint64
	sum     uint64
}

type entry struct{ id, slow, causeNs, durationNs uint64 }

var counter uint64
var entries = make([]entry, MAX_ITEMS)
var started = time.Now()
var bytes [4096]byte
var cached, direct int
var path, address string
var guard sync.Mutex

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func now() uint64 { return uint64(time.Since(started)) }

func threadTime() uint64 {
	var t syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, 3, uintptr(unsafe.Pointer(&t)), 0)
	return uint64(t.Nano())
}

// Units of work of one function for one item: `spread` percent more or less than `base`.
func span(r *request, function, base, spread uint64) uint64 {
	turn := r.id
	if lengths := uint64(LENGTHS); lengths > 0 {
		turn %= lengths
	}
	return base - base*spread/100 + (base*spread/50*(mix(turn*64+function+SEED)>>44))>>20
}

func produce(id uint64) request {
	u := mix(id ^ SEED)
	r := request{id: id, kind: uint32((u >> 32) % 7), size: 100 + uint32((u>>40)%900)}
	if u%1000000 < SLOW_PPM && CAUSE != NOTHING {
		r.slow = 1
	}
	if CAUSE == LOCK { // it is the others that wait
		r.slow, r.step = 0, r.slow
	}
	if CAUSE == CPU {
		if r.slow == 1 {
			r.kind = KIND
		} else if r.kind == KIND {
			r.kind = 7
		}
	}
	return r
}

func enter(done *request, begin uint64) {
	at := atomic.AddUint64(&counter, 1) - 1
	if at < MAX_ITEMS {
		entries[at] = entry{done.id, uint64(done.slow), done.causeNs, now() - begin}
	}
}

// Lines of 64 bytes, each with the number of the next.
type line struct {
	next uint64
	_    [7]uint64
}

var nearLines, farLines []line

func ring(n uint64) []line {
	all := make([]line, n)
	for i := range all {
		all[i].next = uint64(i)
	}
	for i := n - 1; i > 0; i-- {
		j := mix(i+SEED) % i
		all[i].next, all[j].next = all[j].next, all[i].next
	}
	return all
}

func dial() int {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: address})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "connect:", err)
		os.Exit(2)
	}
	return fd
}

// Data of a thread.
type local struct {
	peer   int
	buffer []byte
}

@FUNCTIONS@

func serve(r *request, mine *local, begin uint64) {
	var cpu uint64
	if CAUSE == NEIGHBOUR {
		cpu = threadTime()
	}
	@handler@(r, mine)
	if CAUSE == NEIGHBOUR {
		wall := now() - begin
		cpu = threadTime() - cpu
		if wall > cpu {
			r.causeNs = wall - cpu
		}
		r.slow = 0
		if r.causeNs > 200000 {
			r.slow = 1
		}
	}
	enter(r, begin)
}

type source struct{ id, due, until uint64 }

func (s *source) next() bool {
	t := now()
	for ; t < s.due; t = now() {
		time.Sleep(time.Duration(s.due - t))
	}
	s.id++
	if LENGTHS > 0 {
		s.due += PERIOD_NS
		return t < s.until
	}
	// Some items come together with the one before them.
	if burst := uint64(BURST); burst == 0 || mix(s.id/burst+SEED)%1000000 >= SLOW_PPM {
		u := mix(s.id*7+SEED) | 1
		zeros := uint64(bits.LeadingZeros64(u))
		part := (u << 1 << zeros) >> 44
		s.due += (zeros*693 + 693 - (693 * part >> 20)) * PERIOD_NS / 1000
	}
	return t < s.until
}

func min(a, b uint64) uint64 {
	if a < b {
		return a
	}
	return b
}

func begin() *local {
	runtime.LockOSThread()
	if PINNED > 0 {
		set := uint64(1) << ((PINNED + 63) % 64)
		syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, 8, uintptr(unsafe.Pointer(&set)))
	}
	mine := &local{peer: -1}
	if CAUSE == READ {
		block := make([]byte, EXTRA*4096+8192)
		off := -uintptr(unsafe.Pointer(&block[0])) & 4095
		mine.buffer = block[off : off+EXTRA*4096+4096]
	}
	return mine
}

var waiting = make(chan request, 512)

//go:noinline
func @submit@(r *request) {
	r.begin = now()
	select {
	case waiting <- *r:
	default: // turned away
	}
}

func main() {
	if len(os.Args) < 4 {
		os.Exit(2)
	}
	path, address = os.Args[2], os.Args[3]
	for i := range bytes {
		bytes[i] = byte(mix(uint64(i)))
	}
	for i := range entries {
		entries[i].id = 0
	}
	if CAUSE == CACHE {
		nearLines, farLines = ring(64), ring(1<<20)
	}
	if CAUSE == READ {
		cached, _ = syscall.Open(path, syscall.O_RDWR|syscall.O_CREAT, 0600)
		for i := 0; i < 8192; i++ {
			syscall.Write(cached, bytes[:])
		}
		syscall.Fsync(cached)
		var err error
		if direct, err = syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECT, 0); err != nil {
			direct, _ = syscall.Open(path, syscall.O_RDONLY, 0)
		}
	}
	s := source{0, now() + PERIOD_NS, now() + RUN_NS}
	if SHAPE == THREADS {
		for s.next() {
			go func(r request) {
				mine := begin()
				serve(&r, mine, now())
				if mine.peer >= 0 {
					syscall.Close(mine.peer)
				}
			}(produce(s.id))
		}
		time.Sleep(300 * time.Millisecond)
	} else {
		var all sync.WaitGroup
		for i := 0; i < WORKERS; i++ {
			all.Add(1)
			go func() {
				mine := begin()
				for r := range waiting {
					t := now()
					if CAUSE == QUEUE {
						r.causeNs = t - r.begin
						r.slow = 0
						if r.causeNs > EXTRA {
							r.slow = 1
						}
						t = r.begin
					}
					serve(&r, mine, t)
				}
				all.Done()
			}()
		}
		for s.next() {
			r := produce(s.id)
			@submit@(&r)
		}
		close(waiting)
		all.Wait()
	}
	file, err := os.Create(os.Args[1])
	if err != nil {
		os.Exit(2)
	}
	out := bufio.NewWriter(file)
	n := min(counter, MAX_ITEMS)
	for _, it := range entries[:n] {
		fmt.Fprintln(out, it.id, it.slow, it.causeNs, it.durationNs)
	}
	if out.Flush() != nil || file.Close() != nil {
		os.Exit(2)
	}
}
