// Random programs that are valid by MPI's rules of consistency:
//     random FIRST LAST DIRECTORY [lenient]
//
// Program number s writes and reads DIRECTORY/s.dat (and s.side.dat). All ranks draw the same
// numbers, and so know what each of them does. Ranks open a file up to three times, all together or in
// groups. The file is divided into blocks of 8 bytes; the last writer and reader of each since the last
// sync are kept, a rank with its handle, and before a conflicting access all sync their handles, with a
// barrier between two syncs. All reads, and the files at the end, are compared with what they must
// contain. With the last argument reads are not compared, and a wrong file is removed: MPI libraries
// have defects of their own.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8, BLOCKS = 9000, MOST = 1200, RANKS = 8, SLOTS = 3, NONE = -1, MANY = -2 };

static int rank, ranks;
static int lenient, number;
static uint64_t state;

static uint64_t draw(void) {
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static int below(int n) { return (int)(draw() % (uint64_t)n); }

static void must(int code, const char *call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "rank %d: %s: %s\n", rank, call, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define MUST(call) must(call, #call)

// With MPI 4, calls with large counts are made at random. Datatypes with large counts are not made: the
// MPI-IO of MPICH 4.0 ends the program at a view of them.
#if MPI_VERSION >= 4
#define CALL(name, ...) (large ? name##_c(__VA_ARGS__) : name(__VA_ARGS__))
#else
#define CALL(name, ...) ((void)large, name(__VA_ARGS__))
#endif

// Handles of a file that ranks have opened at the same time: one for each group of them.
typedef struct {
    MPI_File file;
    MPI_Comm comm;
    int open, read_only, atomic;
    // The group of each rank, or NONE; and the ranks of a group in the order of its communicator.
    int group[RANKS], reversed;
    // Blocks that each rank sees, in order; `extent` blocks of the file repeat behind the last.
    int seen[RANKS][256], count[RANKS], extent, displacement, shared_view;
    // The length that each rank must see: that of the last sync, and of its own writes.
    int64_t known[RANKS];
} Slot;

typedef struct {
    const char *path;
    Slot slots[SLOTS];
    // The last writer and reader of each block since the last sync: a slot and a rank.
    int writer[BLOCKS], reader[BLOCKS];
    // What the file contains, and its length.
    unsigned char bytes[BLOCKS * BLOCK];
    int64_t size;
} Target;

static int has(const Slot *s, int r) { return s->open && s->group[r] != NONE; }
static int user_of(const Target *t, const Slot *s, int r) { return (int)(s - t->slots) * RANKS + r; }

static void clear(Target *t) {
    for (int b = 0; b < BLOCKS; b++) t->writer[b] = t->reader[b] = NONE;
    for (int i = 0; i < SLOTS; i++)
        for (int r = 0; r < ranks; r++) t->slots[i].known[r] = t->size;
}

static void sync_all(Target *t) {
    for (int i = 0; i < SLOTS; i++) {
        Slot *s = &t->slots[i];
        if (!has(s, rank)) continue;
        int code = MPI_File_sync(s->file);
        // Open MPI reports an error for handles for reading.
        if (!s->read_only) must(code, "MPI_File_sync");
    }
}

static void synchronize(Target *t) {
    sync_all(t);
    MPI_Barrier(MPI_COMM_WORLD);
    sync_all(t);
    clear(t);
}

static void expect(const Target *t, const char *what, int64_t expected, int64_t found) {
    if (expected == found || lenient) return;
    fprintf(stderr, "program %d, rank %d: %s is %lld and should be %lld (size %lld)\n", number, rank, what,
            (long long)found, (long long)expected, (long long)t->size);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void resize(Target *t, int64_t size) {
    if (size < t->size) memset(t->bytes + size, 0, t->size - size);
    t->size = size;
}

// The block of the file that is block `i` of a rank's view, or NONE behind the test's part.
static int place(const Slot *s, int r, int i) {
    int b = s->displacement + i / s->count[r] * s->extent + s->seen[r][i % s->count[r]];
    return b < BLOCKS ? b : NONE;
}

static MPI_Datatype view_type(const Slot *s, int kind, int length) {
    MPI_Datatype block, part, type;
    int n = s->count[rank];
    const int *seen = s->seen[rank];
    MPI_Type_contiguous(BLOCK / 4, MPI_INT32_T, &block);
    if (kind == 0) {
        MPI_Type_contiguous(1, block, &part);
    } else if (kind <= 2) {
        int rows = kind == 1 ? 1 : s->extent / (length * ranks), order = draw() % 2 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
        if (kind == 2) order = MPI_ORDER_C;
        int sizes[2] = {rows, length * ranks}, counts[2] = {rows, length}, starts[2] = {0, rank * length};
        int first = kind == 1, dimensions = 2 - first;
        MPI_Type_create_subarray(dimensions, sizes + first, counts + first, starts + first, order, block, &part);
    } else if (kind == 3) {
        int size[1] = {s->extent}, kinds[1] = {MPI_DISTRIBUTE_CYCLIC}, arguments[1] = {length}, processes[1] = {ranks};
        MPI_Type_create_darray(ranks, rank, 1, size, kinds, arguments, processes, MPI_ORDER_C, block, &part);
    } else {
        int lengths[256], places[256];
        MPI_Aint bytes[256];
        MPI_Datatype types[256];
        for (int i = 0; i < n; i++) {
            lengths[i] = 1;
            places[i] = seen[i];
            bytes[i] = (MPI_Aint)seen[i] * BLOCK;
            types[i] = block;
        }
        switch (kind) {
        case 4: MPI_Type_indexed(n, lengths, places, block, &part); break;
        case 5: MPI_Type_create_hindexed(n, lengths, bytes, block, &part); break;
        case 6: MPI_Type_create_indexed_block(n, 1, places, block, &part); break;
        case 7: MPI_Type_create_hindexed_block(n, 1, bytes, block, &part); break;
        default: MPI_Type_create_struct(n, lengths, bytes, types, &part); break;
        }
    }
    MPI_Type_create_resized(part, 0, (MPI_Aint)s->extent * BLOCK, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&part);
    MPI_Type_free(&block);
    return type;
}

// Chooses a view in which the ranks see different blocks, or all see all.
static void choose_view(Slot *s) {
    int kind = below(9), length = 1 + below(6), rows = 1 + below(5);
    s->shared_view = kind == 0;
    s->displacement = below(20);
    s->extent = kind == 0 ? 1 : length * ranks * (kind == 1 ? 1 : rows);
    for (int r = 0; r < ranks; r++) s->count[r] = 0;
    for (int b = 0; b < s->extent; b++) {
        int owner = kind <= 3 ? b / length % ranks : b < ranks ? b : below(ranks);
        for (int r = 0; r < ranks; r++)
            if (kind == 0 || owner == r) s->seen[r][s->count[r]++] = b;
    }
    uint64_t kept = state;
    MPI_Datatype type = view_type(s, kind, length);
    state = kept + 7;
    int byte = below(2);
    if (has(s, rank))
        MUST(MPI_File_set_view(s->file, (MPI_Offset)s->displacement * BLOCK, byte ? MPI_BYTE : MPI_INT32_T, type, "native", MPI_INFO_NULL));
    // Offsets count blocks in this program; the unit of the view is a byte or an integer.
    s->shared_view |= byte << 1;
    MPI_Type_free(&type);
}
static MPI_Offset unit(const Slot *s) { return s->shared_view & 2 ? BLOCK : BLOCK / 4; }

// `count` blocks in memory: adjacent, with gaps, or as pairs of a byte and the rest.
static MPI_Datatype memory_type(int kind) {
    MPI_Datatype type, inner;
    int lengths[2] = {1, BLOCK - 1};
    MPI_Aint places[2] = {3, 5};
    MPI_Datatype types[2] = {MPI_BYTE, MPI_BYTE};
    switch (kind) {
    case 0: MPI_Type_contiguous(BLOCK, MPI_BYTE, &type); break;
    case 1:
        MPI_Type_vector(2, 1, 2, MPI_INT32_T, &inner);
        MPI_Type_create_resized(inner, 0, 16, &type);
        MPI_Type_free(&inner);
        break;
    case 2:
        MPI_Type_create_struct(2, lengths, places, types, &inner);
        MPI_Type_create_resized(inner, 0, 16, &type);
        MPI_Type_free(&inner);
        break;
    default: MPI_Type_dup(MPI_DOUBLE, &type); break;
    }
    MPI_Type_commit(&type);
    return type;
}

static int complete(const Target *t, const Slot *s, int way, int write, int place_kind, MPI_Offset offset, void *data, int count, MPI_Datatype type, int large) {
    MPI_Status status;
    MPI_Request request;
    MPI_File f = s->file;
    int elements;
#define EITHER(w, r) MUST(write ? (w) : (r))
#define WAIT MUST(MPI_Wait(&request, &status))
    if (place_kind == 1) MUST(MPI_File_seek(f, offset, MPI_SEEK_SET));
    switch (place_kind * 10 + way) {
    case 0: EITHER(CALL(MPI_File_write_at, f, offset, data, count, type, &status), CALL(MPI_File_read_at, f, offset, data, count, type, &status)); break;
    case 1: EITHER(CALL(MPI_File_write_at_all, f, offset, data, count, type, &status), CALL(MPI_File_read_at_all, f, offset, data, count, type, &status)); break;
    case 2: EITHER(CALL(MPI_File_iwrite_at, f, offset, data, count, type, &request), CALL(MPI_File_iread_at, f, offset, data, count, type, &request)); WAIT; break;
    case 3: EITHER(CALL(MPI_File_iwrite_at_all, f, offset, data, count, type, &request), CALL(MPI_File_iread_at_all, f, offset, data, count, type, &request)); WAIT; break;
    case 4:
        EITHER(CALL(MPI_File_write_at_all_begin, f, offset, data, count, type), CALL(MPI_File_read_at_all_begin, f, offset, data, count, type));
        EITHER(MPI_File_write_at_all_end(f, data, &status), MPI_File_read_at_all_end(f, data, &status));
        break;
    case 10: EITHER(CALL(MPI_File_write, f, data, count, type, &status), CALL(MPI_File_read, f, data, count, type, &status)); break;
    case 11: EITHER(CALL(MPI_File_write_all, f, data, count, type, &status), CALL(MPI_File_read_all, f, data, count, type, &status)); break;
    case 12: EITHER(CALL(MPI_File_iwrite, f, data, count, type, &request), CALL(MPI_File_iread, f, data, count, type, &request)); WAIT; break;
    case 13: EITHER(CALL(MPI_File_iwrite_all, f, data, count, type, &request), CALL(MPI_File_iread_all, f, data, count, type, &request)); WAIT; break;
    default:
        EITHER(CALL(MPI_File_write_all_begin, f, data, count, type), CALL(MPI_File_read_all_begin, f, data, count, type));
        EITHER(MPI_File_write_all_end(f, data, &status), MPI_File_read_all_end(f, data, &status));
        break;
    }
    if (place_kind == 1) {
        MPI_Offset position;
        MUST(MPI_File_get_position(f, &position));
        expect(t, "the file pointer", offset + count * unit(s), position);
    }
    MPI_Get_count(&status, type, &elements);
    return elements;
}

// Place in memory of byte k of block i.
static int memory_place(int kind, int i, int k) {
    switch (kind) {
    case 1: return 16 * i + (k < 4 ? k : 4 + k);
    case 2: return 16 * i + (k == 0 ? 3 : 4 + k);
    default: return BLOCK * i + k;
    }
}

static unsigned char datum(uint64_t seed, int r, int i) {
    return (unsigned char)((seed + r * 77 + i) * 0x9e3779b9u >> 11);
}

// Whether an access of a rank follows one of `user` without a sync: its own through the same handle, and
// in atomic mode those of the handle's other ranks.
static int is_ordered(const Target *t, const Slot *s, int r, int user) {
    if (user == NONE || user == user_of(t, s, r)) return 1;
    return s->atomic && user >= 0 && &t->slots[user / RANKS] == s && s->group[user % RANKS] == s->group[r];
}

// The ranks of a slot read or write parts of their views.
static void access(Target *t, Slot *s, int write) {
    int start[RANKS], count[RANKS], conflict = 0, behind = 0;
    int limit = (BLOCKS - s->displacement) / s->extent;
    // Some of the groups, or all.
    int absent = below(2) ? below(ranks) : NONE;
    for (int r = 0; r < ranks; r++) {
        int blocks = limit * s->count[r], low = 0;
        if ((s->shared_view & 1) && write) {
            // The view shows the same to all: each rank takes a part of it.
            blocks = limit / ranks, low = r * blocks;
        }
        start[r] = low + below(blocks);
        count[r] = below(1 + (blocks - (start[r] - low) < MOST ? blocks - (start[r] - low) : MOST));
        if (!has(s, r) || (absent != NONE && absent == s->group[r])) count[r] = NONE;
        for (int i = 0; i < count[r]; i++) {
            int b = place(s, r, start[r] + i);
            conflict |= !is_ordered(t, s, r, t->writer[b]) || (write && !is_ordered(t, s, r, t->reader[b]));
        }
    }
    if (conflict) synchronize(t);
    if (s->atomic) MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < count[r]; i++) {
            int b = place(s, r, start[r] + i), user = user_of(t, s, r);
            if (write) t->writer[b] = user;
            else t->reader[b] = t->reader[b] == NONE || t->reader[b] == user ? user : MANY;
            behind |= (int64_t)(b + 1) * BLOCK > s->known[r];
        }
    int kind = below(4), way = below(5), place_kind = below(2), large = below(2);
    uint64_t seed = draw();
    // Handles for reading are left to the MPI library. A nonblocking or split read of several pieces, some
    // of them behind the end of the file, never completes in Open MPI 4.1 (`mca_fbtl_posix_progress`).
    if (s->read_only && behind && way > 1) way %= 2;
    // So are handles in atomic mode. Of three ranks and more, collective writes of Open MPI 4.1, some of
    // them of nothing, leave other data in the gaps of the file.
    if (s->atomic && ranks > 2 && (way % 2 == 1 || way == 4)) way = 0;
    static unsigned char data[MOST * 16];
    for (size_t i = 0; i < sizeof data; i++) data[i] = datum(seed, rank, i);
    MPI_Datatype type = memory_type(kind);
    int done = 0;
    // Independent accesses may be missing on some ranks.
    if (count[rank] != NONE && (way % 2 == 1 || way == 4 || count[rank] > 0))
        done = complete(t, s, way, write, place_kind, start[rank] * unit(s), data, count[rank], type, large);
    MPI_Type_free(&type);
    if (s->atomic) MPI_Barrier(MPI_COMM_WORLD);
    int readable = 0;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < count[r]; i++) {
            int b = place(s, r, start[r] + i);
            int64_t end = (int64_t)(b + 1) * BLOCK;
            if (write && end > t->size) t->size = end;
            if (write && end > s->known[r]) s->known[r] = end;
            if (!write && (r != rank || end > s->known[r])) continue;
            readable++;
            for (int k = 0; k < BLOCK; k++) {
                int at = memory_place(kind, i, k);
                if (write) t->bytes[b * BLOCK + k] = datum(seed, r, at);
                else expect(t, "a byte", t->bytes[b * BLOCK + k], data[at]);
            }
        }
    if (count[rank] == NONE) return;
    if (write) expect(t, "the number of elements", count[rank], done);
    else if (readable == count[rank]) expect(t, "the number of elements", count[rank], done);
}

// The ranks of a group in the order of its communicator.
static int members(const Slot *s, int group, int *in_order) {
    int count = 0;
    for (int i = 0; i < ranks; i++) {
        int r = s->reversed ? ranks - 1 - i : i;
        if (s->group[r] == group) in_order[count++] = r;
    }
    return count;
}

// Ranks write or read through the shared pointer of a group, one after another or in their order.
// `at` is where the pointer stands.
static int64_t access_pointer(Target *t, Slot *s, int group, int64_t at, int write) {
    MPI_Status status;
    static unsigned char data[64 * BLOCK];
    int in_order[RANKS], count = members(s, group, in_order), large = below(2);
    int ordered = below(3), turns = 1 + below(3), taking_part = s->group[rank] == group;
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < (ordered ? 1 : count); i++) {
            int drawn = below(20), fill = (int)(draw() % 200), length = 0;
            int mine = taking_part && (ordered || in_order[i] == rank);
            int64_t from = at;
            for (int other = 0; other < count; other++) {
                if (!ordered && other != i) continue;
                int r = in_order[other], blocks = BLOCK * (1 + (drawn + r) % 20);
                if (r == rank) length = blocks, from = at;
                if (write) memset(t->bytes + at, fill + r, blocks);
                at += blocks;
            }
            if (write && at > t->size) t->size = at;
            if (write && at > s->known[rank]) s->known[rank] = at;
            memset(data, fill + rank, sizeof data);
            if (mine && ordered == 1) {
                if (write) MUST(CALL(MPI_File_write_ordered, s->file, data, length, MPI_BYTE, &status));
                else MUST(CALL(MPI_File_read_ordered, s->file, data, length, MPI_BYTE, &status));
            } else if (mine && ordered == 2) {
                if (write) {
                    MUST(CALL(MPI_File_write_ordered_begin, s->file, data, length, MPI_BYTE));
                    MUST(MPI_File_write_ordered_end(s->file, data, &status));
                } else {
                    MUST(CALL(MPI_File_read_ordered_begin, s->file, data, length, MPI_BYTE));
                    MUST(MPI_File_read_ordered_end(s->file, data, &status));
                }
            } else if (mine) {
                if (write) MUST(CALL(MPI_File_write_shared, s->file, data, length, MPI_BYTE, &status));
                else MUST(CALL(MPI_File_read_shared, s->file, data, length, MPI_BYTE, &status));
            }
            for (int i = 0; mine && !write && i < length && from + i < s->known[rank]; i++)
                expect(t, "a byte at the shared pointer", t->bytes[from + i], data[i]);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    return at;
}

static void access_shared(Target *t, Slot *s, int write) {
    MPI_Offset position, start;
    synchronize(t);
    if (has(s, rank)) MUST(MPI_File_set_view(s->file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    start = below(BLOCKS / 2) * BLOCK;
    int group = s->group[below(ranks)];
    if (group != NONE) {
        int taking_part = s->group[rank] == group;
        if (taking_part) MUST(MPI_File_seek_shared(s->file, start, MPI_SEEK_SET));
        int64_t at = access_pointer(t, s, group, start, write);
        if (taking_part) {
            MUST(MPI_File_get_position_shared(s->file, &position));
            expect(t, "the shared pointer", at, position);
        }
    }
    synchronize(t);
    choose_view(s);
}

// One rank of a file that was opened with MPI_MODE_APPEND writes behind its end.
static void append(Target *t, Slot *s) {
    MPI_Status status;
    MPI_Offset position;
    unsigned char data[20 * BLOCK];
    int by = below(ranks), length = BLOCK * below(20), fill = below(200), large = below(2);
    if (has(s, rank)) {
        MUST(MPI_File_get_position(s->file, &position));
        expect(t, "the pointer of a file to append to", t->size, position);
    }
    if (!has(s, by) || t->size + length > BLOCKS * BLOCK) return;
    memset(data, fill, sizeof data);
    if (by == rank) MUST(CALL(MPI_File_write, s->file, data, length, MPI_BYTE, &status));
    for (int b = 0; b < length / BLOCK; b++) t->writer[t->size / BLOCK + b] = user_of(t, s, by);
    memset(t->bytes + t->size, fill, length);
    t->size += length;
    if (length > 0) s->known[by] = t->size;
}

// Divides the ranks into groups: all, all in reverse order, each alone, halves, or a part of them.
static void choose_groups(Slot *s, int kind) {
    int part = 1 + below((1 << ranks) - 1);
    s->reversed = kind == 1 || below(2);
    for (int r = 0; r < ranks; r++) {
        int halves = r * 2 / ranks;
        s->group[r] = kind <= 1 ? 0 : kind == 2 ? r : kind == 3 ? halves : 0;
        if (kind == 4 && !(part >> r & 1)) s->group[r] = NONE;
        // Some open no handle alone.
        if (kind == 2 && !(part >> r & 1)) s->group[r] = NONE;
    }
    if (kind == 0) s->reversed = 0;
    int color = s->group[rank] == NONE ? MPI_UNDEFINED : s->group[rank];
    MPI_Comm_split(MPI_COMM_WORLD, color, s->reversed ? -rank : rank, &s->comm);
}

// Opens a file by the ranks of a slot; what was written is in the file, or synced.
static void open_slot(Target *t, Slot *s, int kind, int mode) {
    int appends = below(4) == 0;
    choose_groups(s, kind);
    s->atomic = 0;
    s->open = 1;
    s->read_only = mode == MPI_MODE_RDONLY;
    if (appends && !s->read_only) mode |= MPI_MODE_APPEND;
    if (has(s, rank)) MUST(MPI_File_open(s->comm, t->path, mode, MPI_INFO_NULL, &s->file));
    MPI_Barrier(MPI_COMM_WORLD);
    clear(t);
    if (mode & MPI_MODE_APPEND) append(t, s);
    choose_view(s);
}

static void open_first(Target *t, int create) {
    // Other groups would have to see the file that one of them creates.
    open_slot(t, &t->slots[0], create ? 0 : below(2), MPI_MODE_RDWR | (create ? MPI_MODE_CREATE : 0));
}

static void close_slot(Slot *s) {
    if (has(s, rank)) {
        MUST(MPI_File_close(&s->file));
        MPI_Comm_free(&s->comm);
    }
    s->open = 0;
}

static int open_slots(const Target *t) {
    int count = 0;
    for (int i = 0; i < SLOTS; i++) count += t->slots[i].open;
    return count;
}

static Slot *any_slot(Target *t) {
    int skipped = below(open_slots(t)), i = 0;
    while (!t->slots[i].open || skipped-- > 0) i++;
    return &t->slots[i];
}

// Opens the file again, or closes a handle; one remains.
static void open_or_close(Target *t) {
    int i = below(SLOTS), kind = below(5), read_only = below(4) == 0;
    Slot *s = &t->slots[i];
    if (s->open) {
        close_slot(s);
        MPI_Barrier(MPI_COMM_WORLD);
        if (open_slots(t) == 0) open_first(t, 0);
        else synchronize(t);
    } else {
        synchronize(t);
        open_slot(t, s, kind, read_only ? MPI_MODE_RDONLY : MPI_MODE_RDWR);
    }
}

// One group changes the size of the file.
static void change_size(Target *t, Slot *s) {
    MPI_Offset size = below(BLOCKS) * BLOCK;
    int group = s->group[below(ranks)], set = below(2);
    if (group == NONE || s->read_only) return;
    synchronize(t);
    if (set) {
        // Open MPI 4.1 sets the size and reports an error on all ranks but the first.
        if (s->group[rank] == group) MPI_File_set_size(s->file, size);
        resize(t, size);
    } else {
        if (s->group[rank] == group) MUST(MPI_File_preallocate(s->file, size));
        if (size > t->size) resize(t, size);
    }
    synchronize(t);
}

static void step(Target *t) {
    MPI_Offset size;
    Slot *s = any_slot(t);
    int write = !s->read_only, atomic = !s->atomic;
    switch (below(24)) {
    case 0: case 1: choose_view(s); break;
    case 2: case 8: open_or_close(t); break;
    case 3: synchronize(t); break;
    case 4: access_shared(t, s, write && below(3) > 0); break;
    case 5: change_size(t, s); break;
    case 6:
        synchronize(t);
        if (has(s, rank)) MUST(MPI_File_set_atomicity(s->file, atomic));
        s->atomic = atomic;
        synchronize(t);
        break;
    case 7:
        synchronize(t);
        if (has(s, rank)) {
            MUST(MPI_File_get_size(s->file, &size));
            expect(t, "the size", t->size, size);
        }
        synchronize(t);
        break;
    case 9: case 10: case 11: case 12: case 13: access(t, s, 0); break;
    default: access(t, s, write); break;
    }
}

static void check_file(const Target *t, const char *path) {
    static unsigned char found[BLOCKS * BLOCK + 1];
    // In the background the file is complete when it is opened again.
    MPI_File file;
    MUST(MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    MUST(MPI_File_close(&file));
    FILE *in = fopen(path, "r");
    int64_t length = in ? (int64_t)fread(found, 1, sizeof found, in) : -1;
    if (in) fclose(in);
    if (lenient) {
        if (length != t->size || memcmp(found, t->bytes, t->size)) remove(path);
        return;
    }
    expect(t, "the length of the file", t->size, length);
    for (int64_t i = 0; i < t->size; i++) expect(t, "a byte of the file", t->bytes[i], found[i]);
}

static void program(const char *directory) {
    static Target targets[2];
    char paths[2][4096];
    state = (uint64_t)number * 0x2545f4914f6cdd1du;
    int files = 1 + (below(4) == 0), steps = 4 + below(16);
    for (int f = 0; f < files; f++) {
        Target *t = &targets[f];
        snprintf(paths[f], sizeof paths[f], "%s/%d%s.dat", directory, number, f ? ".side" : "");
        memset(t, 0, sizeof *t);
        t->path = paths[f];
        open_first(t, 1);
        access(t, &t->slots[0], 1);
    }
    for (int s = 0; s < steps; s++) step(&targets[below(files)]);
    for (int f = 0; f < files; f++) {
        Target *t = &targets[f];
        // Accesses through different handles are ordered by syncs only.
        while (open_slots(t) > 0) {
            close_slot(any_slot(t));
            MPI_Barrier(MPI_COMM_WORLD);
            synchronize(t);
        }
        if (rank == 0) check_file(t, paths[f]);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4 || ranks > RANKS) return 2;
    lenient = argc > 4;
    int last = atoi(argv[2]);
    for (number = atoi(argv[1]); number < last; number++) program(argv[3]);
    MPI_Finalize();
    return 0;
}
