// Random programs that are valid by MPI's rules of consistency:
//     random FIRST LAST DIRECTORY [lenient]
//
// Program number s writes and reads DIRECTORY/s.dat (and s.side.dat). All ranks draw the same
// numbers, and so know what each of them does. The file is divided into blocks of 8 bytes; the last
// writer and reader of each since the last sync are kept, and before a conflicting access the
// ranks call sync, barrier, sync. All reads, and the files at the end, are compared with what they
// must contain. With the last argument reads are not compared, and a wrong file is removed: MPI
// libraries have defects of their own.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 8, BLOCKS = 9000, MOST = 1200, NONE = -1, MANY = -2 };

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

typedef struct {
    MPI_File file;
    int writer[BLOCKS], reader[BLOCKS];
    // Blocks that each rank sees, in order; `stride` blocks of the file repeat behind the last.
    // What the file contains, and its length.
    unsigned char bytes[BLOCKS * BLOCK];
    int64_t size;
    // The length that each rank must see: that of the last sync, and of its own writes.
    int64_t known[16];
    int seen[16][256], count[16], extent, displacement, shared_view, atomic;
} Target;

static void clear(Target *t) {
    for (int b = 0; b < BLOCKS; b++) t->writer[b] = t->reader[b] = NONE;
    for (int r = 0; r < ranks; r++) t->known[r] = t->size;
}

static void synchronize(Target *t) {
    MUST(MPI_File_sync(t->file));
    MPI_Barrier(MPI_COMM_WORLD);
    MUST(MPI_File_sync(t->file));
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
static int place(const Target *t, int r, int i) {
    int b = t->displacement + i / t->count[r] * t->extent + t->seen[r][i % t->count[r]];
    return b < BLOCKS ? b : NONE;
}

static MPI_Datatype view_type(const Target *t, int kind, int length) {
    MPI_Datatype block, part, type;
    int n = t->count[rank];
    const int *seen = t->seen[rank];
    MPI_Type_contiguous(BLOCK / 4, MPI_INT32_T, &block);
    if (kind == 0) {
        MPI_Type_contiguous(1, block, &part);
    } else if (kind == 1) {
        int sizes[1] = {length * ranks}, counts[1] = {length}, starts[1] = {rank * length};
        MPI_Type_create_subarray(1, sizes, counts, starts, draw() % 2 ? MPI_ORDER_C : MPI_ORDER_FORTRAN, block, &part);
    } else if (kind == 2) {
        int rows = t->extent / (length * ranks);
        int sizes[2] = {rows, length * ranks}, counts[2] = {rows, length}, starts[2] = {0, rank * length};
        MPI_Type_create_subarray(2, sizes, counts, starts, MPI_ORDER_C, block, &part);
    } else if (kind == 3) {
        int size[1] = {t->extent}, kinds[1] = {MPI_DISTRIBUTE_CYCLIC}, arguments[1] = {length}, processes[1] = {ranks};
        MPI_Type_create_darray(ranks, rank, 1, size, kinds, arguments, processes, MPI_ORDER_C, block, &part);
    } else {
        int *lengths = malloc(n * sizeof *lengths), *places = malloc(n * sizeof *places);
        MPI_Aint *bytes = malloc(n * sizeof *bytes);
        MPI_Datatype *types = malloc(n * sizeof *types);
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
        free(lengths), free(places), free(bytes), free(types);
    }
    MPI_Type_create_resized(part, 0, (MPI_Aint)t->extent * BLOCK, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&part);
    MPI_Type_free(&block);
    return type;
}

// Chooses a view in which the ranks see different blocks, or all see all.
static void choose_view(Target *t) {
    int kind = below(9), length = 1 + below(6), rows = 1 + below(5);
    t->shared_view = kind == 0;
    t->displacement = below(20);
    t->extent = kind == 0 ? 1 : length * ranks * (kind == 1 ? 1 : rows);
    for (int r = 0; r < ranks; r++) t->count[r] = 0;
    for (int b = 0; b < t->extent; b++) {
        int owner = kind <= 3 ? b / length % ranks : b < ranks ? b : below(ranks);
        for (int r = 0; r < ranks; r++)
            if (kind == 0 || owner == r) t->seen[r][t->count[r]++] = b;
    }
    uint64_t kept = state;
    MPI_Datatype type = view_type(t, kind, length);
    state = kept + 7;
    int byte = below(2);
    MUST(MPI_File_set_view(t->file, (MPI_Offset)t->displacement * BLOCK, byte ? MPI_BYTE : MPI_INT32_T, type, "native", MPI_INFO_NULL));
    // Offsets count blocks in this program; the unit of the view is a byte or an integer.
    t->shared_view |= byte << 1;
    MPI_Type_free(&type);
}
static MPI_Offset unit(const Target *t) { return t->shared_view & 2 ? BLOCK : BLOCK / 4; }

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

static int complete(Target *t, int way, int write, int place_kind, MPI_Offset offset, void *data, int count, MPI_Datatype type) {
    MPI_Status status;
    MPI_Request request;
    MPI_File f = t->file;
    int elements;
#define EITHER(w, r) MUST(write ? (w) : (r))
#define WAIT MUST(MPI_Wait(&request, &status))
    if (place_kind == 1) MUST(MPI_File_seek(f, offset, MPI_SEEK_SET));
    switch (place_kind * 10 + way) {
    case 0: EITHER(MPI_File_write_at(f, offset, data, count, type, &status), MPI_File_read_at(f, offset, data, count, type, &status)); break;
    case 1: EITHER(MPI_File_write_at_all(f, offset, data, count, type, &status), MPI_File_read_at_all(f, offset, data, count, type, &status)); break;
    case 2: EITHER(MPI_File_iwrite_at(f, offset, data, count, type, &request), MPI_File_iread_at(f, offset, data, count, type, &request)); WAIT; break;
    case 3: EITHER(MPI_File_iwrite_at_all(f, offset, data, count, type, &request), MPI_File_iread_at_all(f, offset, data, count, type, &request)); WAIT; break;
    case 4:
        EITHER(MPI_File_write_at_all_begin(f, offset, data, count, type), MPI_File_read_at_all_begin(f, offset, data, count, type));
        EITHER(MPI_File_write_at_all_end(f, data, &status), MPI_File_read_at_all_end(f, data, &status));
        break;
    case 10: EITHER(MPI_File_write(f, data, count, type, &status), MPI_File_read(f, data, count, type, &status)); break;
    case 11: EITHER(MPI_File_write_all(f, data, count, type, &status), MPI_File_read_all(f, data, count, type, &status)); break;
    case 12: EITHER(MPI_File_iwrite(f, data, count, type, &request), MPI_File_iread(f, data, count, type, &request)); WAIT; break;
    case 13: EITHER(MPI_File_iwrite_all(f, data, count, type, &request), MPI_File_iread_all(f, data, count, type, &request)); WAIT; break;
    default:
        EITHER(MPI_File_write_all_begin(f, data, count, type), MPI_File_read_all_begin(f, data, count, type));
        EITHER(MPI_File_write_all_end(f, data, &status), MPI_File_read_all_end(f, data, &status));
        break;
    }
    if (place_kind == 1) {
        MPI_Offset position;
        MUST(MPI_File_get_position(f, &position));
        expect(t, "the file pointer", offset + count * unit(t), position);
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

// All ranks read or write parts of their views.
static void access(Target *t, int write) {
    int start[16], count[16], conflict = 0;
    int limit = (BLOCKS - t->displacement) / t->extent;
    for (int r = 0; r < ranks; r++) {
        int blocks = limit * t->count[r], low = 0;
        if ((t->shared_view & 1) && write) {
            // The view shows the same to all: each rank takes a part of it.
            blocks = limit / ranks, low = r * blocks;
        }
        start[r] = low + below(blocks);
        count[r] = below(1 + (blocks - (start[r] - low) < MOST ? blocks - (start[r] - low) : MOST));
        for (int i = 0; i < count[r]; i++) {
            int b = place(t, r, start[r] + i);
            conflict |= t->writer[b] != NONE && t->writer[b] != r;
            conflict |= write && t->reader[b] != NONE && t->reader[b] != r;
        }
    }
    if (conflict && !t->atomic) synchronize(t);
    if (t->atomic) MPI_Barrier(MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < count[r]; i++) {
            int b = place(t, r, start[r] + i);
            if (write) t->writer[b] = r;
            else t->reader[b] = t->reader[b] == NONE || t->reader[b] == r ? r : MANY;
        }
    int kind = below(4), way = below(5), place_kind = below(2);
    uint64_t seed = draw();
    static unsigned char data[MOST * 16];
    for (size_t i = 0; i < sizeof data; i++) data[i] = datum(seed, rank, i);
    MPI_Datatype type = memory_type(kind);
    int done = 0;
    // Independent accesses may be missing on some ranks.
    if (way % 2 == 1 || way == 4 || count[rank] > 0)
        done = complete(t, way, write, place_kind, start[rank] * unit(t), data, count[rank], type);
    MPI_Type_free(&type);
    if (t->atomic) MPI_Barrier(MPI_COMM_WORLD);
    int readable = 0;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < count[r]; i++) {
            int b = place(t, r, start[r] + i);
            int64_t end = (int64_t)(b + 1) * BLOCK;
            if (write && end > t->size) t->size = end;
            if (write && end > t->known[r]) t->known[r] = end;
            if (!write && (r != rank || end > t->known[r])) continue;
            readable++;
            for (int k = 0; k < BLOCK; k++) {
                int at = memory_place(kind, i, k);
                if (write) t->bytes[b * BLOCK + k] = datum(seed, r, at);
                else expect(t, "a byte", t->bytes[b * BLOCK + k], data[at]);
            }
        }
    if (write) expect(t, "the number of elements", count[rank], done);
    else if (readable == count[rank]) expect(t, "the number of elements", count[rank], done);
}

// Ranks write or read through the shared pointer, one after another or in their order.
static void access_shared(Target *t, int write) {
    MPI_Status status;
    MPI_Offset position, start;
    static unsigned char data[64 * BLOCK];
    synchronize(t);
    MUST(MPI_File_set_view(t->file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    start = below(BLOCKS / 2) * BLOCK;
    MUST(MPI_File_seek_shared(t->file, start, MPI_SEEK_SET));
    int ordered = below(3), turns = 1 + below(3);
    int64_t at = start;
    for (int turn = 0; turn < turns; turn++)
        for (int r = 0; r < (ordered ? 1 : ranks); r++) {
            int drawn = below(20), fill = (int)(draw() % 200), length = 0, mine = ordered || r == rank;
            int64_t from = at;
            for (int other = 0; other < ranks; other++) {
                if (!ordered && other != r) continue;
                int blocks = BLOCK * (1 + (drawn + other) % 20);
                if (other == rank) length = blocks, from = at;
                if (write) memset(t->bytes + at, fill + other, blocks);
                at += blocks;
            }
            if (write && at > t->size) t->size = at;
            if (write && at > t->known[rank]) t->known[rank] = at;
            memset(data, fill + rank, sizeof data);
            if (ordered == 1) {
                if (write) MUST(MPI_File_write_ordered(t->file, data, length, MPI_BYTE, &status));
                else MUST(MPI_File_read_ordered(t->file, data, length, MPI_BYTE, &status));
            } else if (ordered == 2) {
                if (write) {
                    MUST(MPI_File_write_ordered_begin(t->file, data, length, MPI_BYTE));
                    MUST(MPI_File_write_ordered_end(t->file, data, &status));
                } else {
                    MUST(MPI_File_read_ordered_begin(t->file, data, length, MPI_BYTE));
                    MUST(MPI_File_read_ordered_end(t->file, data, &status));
                }
            } else if (mine) {
                if (write) MUST(MPI_File_write_shared(t->file, data, length, MPI_BYTE, &status));
                else MUST(MPI_File_read_shared(t->file, data, length, MPI_BYTE, &status));
            }
            for (int i = 0; mine && !write && i < length && from + i < t->known[rank]; i++)
                expect(t, "a byte at the shared pointer", t->bytes[from + i], data[i]);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    MUST(MPI_File_get_position_shared(t->file, &position));
    expect(t, "the shared pointer", at, position);
    synchronize(t);
    choose_view(t);
}

static void open_target(Target *t, const char *path, int mode) {
    MUST(MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &t->file));
    t->atomic = 0;
    clear(t);
    choose_view(t);
}

static void step(Target *t, const char *path) {
    MPI_Offset size;
    int atomic = !t->atomic;
    switch (below(24)) {
    case 0: case 1: case 2: choose_view(t); break;
    case 3: synchronize(t); break;
    case 4: access_shared(t, below(3) > 0); break;
    case 5:
        synchronize(t);
        size = below(BLOCKS) * BLOCK;
        // Open MPI 4.1 sets the size and reports an error on all ranks but the first.
        if (below(2)) {
            MPI_File_set_size(t->file, size);
            resize(t, size);
        } else {
            MUST(MPI_File_preallocate(t->file, size));
            if (size > t->size) resize(t, size);
        }
        synchronize(t);
        break;
    case 6:
        synchronize(t);
        MUST(MPI_File_set_atomicity(t->file, atomic));
        t->atomic = atomic;
        synchronize(t);
        break;
    case 7:
        synchronize(t);
        MUST(MPI_File_get_size(t->file, &size));
        expect(t, "the size", t->size, size);
        synchronize(t);
        break;
    case 8:
        MUST(MPI_File_close(&t->file));
        MPI_Barrier(MPI_COMM_WORLD);
        open_target(t, path, MPI_MODE_RDWR);
        break;
    case 9: case 10: case 11: case 12: case 13: access(t, 0); break;
    default: access(t, 1); break;
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
        snprintf(paths[f], sizeof paths[f], "%s/%d%s.dat", directory, number, f ? ".side" : "");
        memset(&targets[f], 0, sizeof targets[f]);
        open_target(&targets[f], paths[f], MPI_MODE_CREATE | MPI_MODE_RDWR);
        access(&targets[f], 1);
    }
    for (int s = 0; s < steps; s++) {
        int f = below(files);
        step(&targets[f], paths[f]);
    }
    for (int f = 0; f < files; f++) {
        MUST(MPI_File_close(&targets[f].file));
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) check_file(&targets[f], paths[f]);
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4 || ranks > 8) return 2;
    lenient = argc > 4;
    int last = atoi(argv[2]);
    for (number = atoi(argv[1]); number < last; number++) program(argv[3]);
    MPI_Finalize();
    return 0;
}
