// What lanes touch: whether it is theirs to touch, and in an order that is sure.  Included
// by fibers.cpp, once.
#pragma once

// Each byte has marks of who wrote it and who read it last.

struct Cell { uint64_t written, read; };

// A mark has, from the lowest bit: whether it was atomic (1), how often the warp (14) and
// the block (14) had waited, the lane (11), the block among those of all launches (24).
const unsigned many_lanes = 0x7ff, many_blocks = 0xffffff, most_waits = 0x3fff;

unsigned block_of(uint64_t mark) { return (unsigned)(mark >> 40); }
unsigned lane_of(uint64_t mark) { return (unsigned)(mark >> 29) & 0x7ff; }
unsigned barriers_of(uint64_t mark) { return (unsigned)(mark >> 15) & most_waits; }
unsigned orders_of(uint64_t mark) { return (unsigned)(mark >> 1) & most_waits; }

uint64_t of_many_blocks(bool atomic) {
  return (uint64_t)many_blocks << 40 | (uint64_t)launch_serial << 1 | atomic;
}

class Shadow {
 public:
  Cell* cells(size_t count) {
    if (count > size_) {
      if (cells_) munmap(cells_, size_ * sizeof(Cell));
      size_ = count + count / 2 + 4096;
      void* found = mmap(nullptr, size_ * sizeof(Cell), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (found == MAP_FAILED) abort();
      cells_ = (Cell*)found;
    }
    return cells_;
  }
  void forget() {
    if (cells_) madvise(cells_, size_ * sizeof(Cell), MADV_DONTNEED);
  }

 private:
  Cell* cells_ = nullptr;
  size_t size_ = 0;
};
Shadow shadow;

struct Place {
  uint64_t begin, end;
  bool written, shared;
  Cell* cells;
  const Interval* intervals;
  uint64_t count;
  int number;
};
std::vector<Place> places;

bool ordered(uint64_t mark, uint64_t now) {
  const unsigned block = block_of(mark);
  if (block == many_blocks)
    return ((mark >> 1) & 0x7fffffffff) != launch_serial;
  if (block < first_block) return true;
  if (block != block_of(now)) return false;
  if (lane_of(mark) == lane_of(now)) return true;
  if (barriers_of(mark) < barriers_of(now)) return true;
  return lane_of(mark) != many_lanes && lane_of(mark) / 32 == lane_of(now) / 32 &&
         orders_of(mark) < orders_of(now);
}

uint64_t both(uint64_t mark, uint64_t now) {
  if (ordered(mark, now)) return now;
  const bool atomic = mark & now & 1;
  if (block_of(mark) != block_of(now)) return of_many_blocks(atomic);
  return ((now >> 1 << 1) | atomic) | (uint64_t)many_lanes << 29;
}

void other(uint64_t mark, char* text, size_t size) {
  if (block_of(mark) == many_blocks)
    snprintf(text, size, "lanes of several blocks");
  else if (lane_of(mark) == many_lanes)
    snprintf(text, size, "several lanes");
  else if (block_of(mark) != block_serial)
    snprintf(text, size, "lane %u of another block", lane_of(mark));
  else
    snprintf(text, size, "lane %u", lane_of(mark));
}

enum Access { reads = 0, writes = 1, weakly = 2, changes = 3 };

const char* named(int access) { return access & 1 ? "writes" : "reads"; }

void what(const Place& place, char* text, size_t size) {
  if (place.shared)
    snprintf(text, size, "shared memory");
  else
    snprintf(text, size, "buffer %d", place.number);
}

void race(const void* from, const Place& place, uint64_t offset, int access,
          const char* did, uint64_t mark) {
  char who[64], where[32];
  other(mark, who, sizeof who);
  what(place, where, sizeof where);
  FAIL(from, "%s byte %llu of %s, which %s %s, and nothing orders them: a race",
       named(access), (unsigned long long)offset, where, who, did);
}

void look(const void* from, uint64_t at, unsigned nbytes, int access) {
  if (!running) return;
  Lane& lane = lanes[current];
  if (at - (uint64_t)lane.stack < stack_bytes) return;
  if (++accesses > launch.most_accesses) FAIL(from, "accesses memory without an end");
  Place* found = nullptr;
  for (Place& place : places)
    if (at >= place.begin && at < place.end) { found = &place; break; }
  if (!found) {
    if (!(access & 1) && at >= launch.image_begin && at < launch.image_end) return;
    const Place* nearest = nullptr;
    uint64_t least = ~0ull;
    for (Place& place : places) {
      const uint64_t far = at < place.begin ? place.begin - at : at - place.end;
      if (far < least) { least = far; nearest = &place; }
    }
    if (!nearest || least > 1 << 20)
      FAIL(from, "%s %u bytes at %#llx, where no array is", named(access), nbytes,
           (unsigned long long)at);
    char where[32];
    what(*nearest, where, sizeof where);
    FAIL(from, "%s %u bytes, %llu bytes %s of %s", named(access), nbytes,
         (unsigned long long)least, at < nearest->begin ? "before the begin" : "beyond the end",
         where);
  }
  char where[32];
  const uint64_t offset = at - found->begin;
  if (at + nbytes > found->end) {
    what(*found, where, sizeof where);
    FAIL(from, "%s %u bytes at byte %llu of %s, across its end", named(access), nbytes,
         (unsigned long long)offset, where);
  }
  if ((nbytes & (nbytes - 1)) == 0 && nbytes <= 16 && at % nbytes) {
    what(*found, where, sizeof where);
    FAIL(from, "%s %u bytes at byte %llu of %s, which is not aligned", named(access),
         nbytes, (unsigned long long)offset, where);
  }
  if ((access & 1) && !found->written)
    FAIL(from, "writes to buffer %d, which is only read", found->number);
  if (found->count) {
    bool inside = false;
    for (uint64_t n = 0; n < found->count; n++) {
      const Interval& each = found->intervals[n];
      inside |= offset >= each.begin && offset + nbytes <= each.end &&
                (each.written || !(access & 1));
    }
    if (!inside)
      FAIL(from, "%s %u bytes at byte %llu of buffer %d, where none of its views is",
           named(access), nbytes, (unsigned long long)offset, found->number);
  }
  if (!found->cells) return;
  const bool atomic = access & 2;
  const uint64_t now = (uint64_t)block_serial << 40 | (uint64_t)current << 29 |
                       (uint64_t)barriers << 15 | (uint64_t)orders[current / 32] << 1 |
                       atomic;
  for (unsigned n = 0; n < nbytes; n++) {
    Cell& cell = found->cells[offset + n];
    if (found->shared) {  // what another block had is gone
      if (block_of(cell.written) != block_serial) cell.written = 0;
      if (block_of(cell.read) != block_serial) cell.read = 0;
    }
    if (access & 1) {
      if (cell.written == now) continue;
      if (!(atomic && (cell.written & 1)) && !ordered(cell.written, now))
        race(from, *found, offset + n, access, "wrote", cell.written);
      if (!(atomic && (cell.read & 1)) && !ordered(cell.read, now))
        race(from, *found, offset + n, access, "read", cell.read);
      cell.written = both(cell.written, now);
    } else {
      if (found->shared && !cell.written)
        FAIL(from, "reads byte %llu of shared memory, which nobody wrote to",
             (unsigned long long)(offset + n));
      if (cell.read == now) continue;
      if (!(atomic && (cell.written & 1)) && !ordered(cell.written, now))
        race(from, *found, offset + n, access, "wrote", cell.written);
      cell.read = both(cell.read, now);
    }
  }
}
