// CUDA's kernel environment on a CPU: the same sources, compiled as C++, are checked without a GPU.
// The threads of a block are fibres that run in turn and switch only at barriers, so a kernel with a
// missing barrier gives different results in different orders (`run_block`), and one with a barrier
// that not all threads reach aborts the process. Shared memory starts out as NaN.
#pragma once
#undef _FORTIFY_SOURCE // fibres are switched by _longjmp, which it takes for a mistake
#include <algorithm>
#include <csetjmp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __device__
#define __forceinline__ inline

using std::min;

struct dim3 {
    unsigned x, y, z;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};

namespace host {

constexpr size_t STACK = 128 << 10, SHARED = 48 << 10; // bytes; the latter as on every GPU
constexpr unsigned WARP = 32;

struct Barrier {
    unsigned arrived = 0, generation = 0;
};

struct Warp {
    Barrier barrier;
    uint32_t values[WARP][8]; // values exchanged between lanes
};

struct Fibre {
    ucontext_t first;  // where it starts
    jmp_buf place;     // where it goes on
    bool begun, done;
    dim3 thread;
    unsigned index;
    size_t shared;     // bytes of shared memory that it has named
    std::unique_ptr<char[]> stack;
};

struct Block {
    dim3 grid, size, index;
    unsigned threads;
    Barrier barrier;
    std::vector<Warp> warps;
    std::vector<Fibre> fibres;
    std::unique_ptr<char[]> shared{new char[SHARED + 16]};
    Fibre *current = nullptr;
    jmp_buf scheduler;
    std::function<void()> body;
    bool moved = false; // true if any fibre passed a barrier or ended in this round
};

inline thread_local Block block;
inline thread_local unsigned order = 0;

[[noreturn]] inline void die(const char *what) {
    fprintf(stderr, "a kernel on the host: %s\n", what);
    abort();
}

inline void yield() {
    if (!_setjmp(block.current->place)) _longjmp(block.scheduler, 1);
}

inline void wait(Barrier &barrier, unsigned threads) {
    block.moved = true;
    if (++barrier.arrived == threads) {
        barrier.arrived = 0;
        ++barrier.generation;
    } else {
        unsigned generation = barrier.generation;
        while (generation == barrier.generation) yield();
        block.moved = true;
    }
}

inline Warp &warp() { return block.warps[block.current->index / WARP]; }
inline unsigned lane() { return block.current->index % WARP; }

inline void enter() {
    block.body();
    block.current->done = true;
    block.moved = true;
    _longjmp(block.scheduler, 1);
}

inline void resume(Fibre &fibre) {
    block.current = &fibre;
    if (_setjmp(block.scheduler)) return;
    if (fibre.begun) _longjmp(fibre.place, 1);
    fibre.begun = true;
    getcontext(&fibre.first);
    fibre.first.uc_stack.ss_sp = fibre.stack.get();
    fibre.first.uc_stack.ss_size = STACK;
    fibre.first.uc_link = nullptr;
    makecontext(&fibre.first, enter, 0);
    setcontext(&fibre.first);
}

// Gives each of the threads from .. to a turn, ascending or descending; returns true if any made progress.
inline bool turns(unsigned from, unsigned to, bool down, unsigned &left) {
    block.moved = false;
    for (unsigned i = from; i < to; ++i) {
        Fibre &fibre = block.fibres[down ? to - 1 - (i - from) : i];
        if (fibre.done) continue;
        resume(fibre);
        left -= fibre.done;
    }
    return block.moved;
}

// All threads of one block, in the given order: 0 in turn, each up to its next barrier; 1 the same
// descending; 2 warp by warp, each up to where it waits for another; 3 the same descending.
inline void run_block() {
    bool down = order % 2, whole = order < 2;
    unsigned size = whole ? block.threads : WARP, count = block.threads / size;
    for (unsigned left = block.threads; left;) {
        bool ahead = false;
        for (unsigned i = 0; i < count; ++i) {
            unsigned from = (down ? count - 1 - i : i) * size;
            while (turns(from, from + size, down, left)) ahead = true;
        }
        if (left && !ahead) die("some threads wait at a barrier that others do not reach");
    }
}

using Call = std::function<void(void **)>;
inline std::map<std::string, Call> &kernels() {
    static std::map<std::string, Call> all;
    return all;
}

struct Registered {
    template <class... A> Registered(const char *name, void (*f)(A...)) {
        kernels()[name] = [f](void **args) { call(f, args, std::index_sequence_for<A...>{}); };
    }
    template <class... A, size_t... I>
    static void call(void (*f)(A...), void **args, std::index_sequence<I...>) {
        f(*static_cast<A *>(args[I])...);
    }
};

template <class T> T *shared(size_t count) {
    size_t at = (block.current->shared + 15) & ~size_t(15);
    block.current->shared = at + count * sizeof(T);
    if (block.current->shared > SHARED) die("more than 48 KiB of shared memory");
    size_t base = (reinterpret_cast<uintptr_t>(block.shared.get()) + 15) & ~uintptr_t(15);
    return reinterpret_cast<T *>(base + at);
}

} // namespace host

#define threadIdx (host::block.current->thread)
#define blockIdx (host::block.index)
#define blockDim (host::block.size)
#define gridDim (host::block.grid)
#define SHARED(type, name, count) type *name = host::shared<type>(count)
#define KERNEL(name, ...)                                                                              \
    static void name(__VA_ARGS__);                                                                     \
    static host::Registered name##_registered(#name, name);                                            \
    static void name(__VA_ARGS__)

#define KERNEL_IN(bounds, name, ...) KERNEL(name, __VA_ARGS__)

inline void __syncthreads() { host::wait(host::block.barrier, host::block.threads); }
inline void __syncwarp() { host::wait(host::warp().barrier, host::WARP); }

template <class T> T __shfl_xor_sync(unsigned, T value, int offset) {
    static_assert(sizeof(T) <= sizeof(host::Warp::values[0]), "a value fits");
    memcpy(host::warp().values[host::lane()], &value, sizeof(T));
    __syncwarp();
    memcpy(&value, host::warp().values[host::lane() ^ offset], sizeof(T));
    __syncwarp();
    return value;
}

// The tensor cores' product of PTX, `mma.sync.m16n8k16`: lane 4 g + t holds of A (16, 16) rows g and
// g + 8, of B (16, 8) column g, of C (16, 8) rows g and g + 8, in each columns (of B rows) 2 t and
// 2 t + 1, and the same + 8.
inline void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    auto half = [](uint32_t pair, unsigned i) {
        uint32_t bits = i ? pair & 0xffff0000u : pair << 16;
        float value;
        memcpy(&value, &bits, 4);
        return value;
    };
    auto &values = host::warp().values;
    unsigned lane = host::lane();
    memcpy(values[lane], a, 16);
    memcpy(values[lane] + 4, b, 8);
    __syncwarp();
    for (unsigned e = 0; e < 4; ++e) {
        unsigned row = lane / 4 + (e / 2) * 8, col = 2 * (lane % 4) + e % 2;
        for (unsigned k = 0; k < 16; ++k) {
            unsigned t = (k % 8) / 2;
            uint32_t left = values[(row % 8) * 4 + t][(row / 8) + (k / 8) * 2];
            uint32_t right = values[col * 4 + t][4 + k / 8];
            c[e] += half(left, k % 2) * half(right, k % 2);
        }
    }
    __syncwarp();
}

extern "C" void wave_host_order(unsigned order) { host::order = order; }

// Runs a kernel, with all its blocks and threads; returns 0 if there is none of that name.
extern "C" int wave_host_launch(const char *name, const unsigned *grid, unsigned threads, void **args) {
    auto found = host::kernels().find(name);
    if (found == host::kernels().end()) return 0;
    if (threads % host::WARP || threads > 1024) host::die("a block of broken warps");
    host::Block &block = host::block;
    block.grid = {grid[0], grid[1], grid[2]};
    block.size = {threads, 1, 1};
    block.threads = threads;
    block.fibres.resize(std::max<size_t>(block.fibres.size(), threads));
    block.body = [&] { found->second(args); };
    for (unsigned z = 0; z < grid[2]; ++z)
        for (unsigned y = 0; y < grid[1]; ++y)
            for (unsigned x = 0; x < grid[0]; ++x) {
                block.index = {x, y, z};
                block.barrier = {};
                block.warps.assign(threads / host::WARP, {});
                memset(block.shared.get(), 0xff, host::SHARED + 16);
                for (unsigned i = 0; i < threads; ++i) {
                    host::Fibre &fibre = block.fibres[i];
                    if (!fibre.stack) fibre.stack.reset(new char[host::STACK]);
                    fibre.begun = fibre.done = false;
                    fibre.thread = {i, 0, 0};
                    fibre.index = i;
                    fibre.shared = 0;
                }
                host::run_block();
            }
    return 1;
}
