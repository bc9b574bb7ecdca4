/* A stand-in for NVIDIA's libnvidia-ml.so.1: the functions that Windrow calls, with the names, signatures, structures
 * and numbers of NVML's API Reference (docs.nvidia.com/deploy/nvml-api; nvml.h), and values from a folder that tests
 * write, STANDIN_GPUS:
 *
 *   gpus          one line a device, in the driver's order: UUID|name|total MiB|used MiB|busy percent|state
 *                 state: ok; lost (fallen off the bus); mig PARENT (an instance of device number PARENT, counted from
 *                 0), where PARENT itself has the state mig-on.
 *   process-*     one file a process: UUID|pid|MiB|busy percent
 *   init          if it is there: the number that nvmlInit_v2 returns
 *   hang          while it is there, reading a device does not return
 *
 * A file is replaced as a whole (renamed), so a reader never sees half of one. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define OK 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define GPU_IS_LOST 15
#define MOST 32

typedef struct { char uuid[96], name[96], state[16]; unsigned long long total, used; unsigned busy; int parent; } Gpu;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long used; unsigned instance, compute; } ProcessInfo;
typedef struct { unsigned pid; unsigned long long time; unsigned sm, mem, enc, dec; } Sample;

static Gpu gpus[MOST];

static void place(char *path, const char *name) {
  const char *folder = getenv("STANDIN_GPUS");
  snprintf(path, 4096, "%s/%s", folder ? folder : "/nonexistent", name);
}

static int there(const char *name) {
  char path[4096];
  place(path, name);
  return access(path, F_OK) == 0;
}

static int load(void) {
  char path[4096], line[512];
  int count = 0;
  place(path, "gpus");
  FILE *file = fopen(path, "r");
  if (!file) return 0;
  while (count < MOST && fgets(line, sizeof line, file)) {
    Gpu *gpu = &gpus[count];
    gpu->parent = -1;
    if (sscanf(line, "%95[^|]|%95[^|]|%llu|%llu|%u|%15s %d", gpu->uuid, gpu->name, &gpu->total, &gpu->used, &gpu->busy,
               gpu->state, &gpu->parent) >= 6) count++;
  }
  fclose(file);
  return count;
}

/* Handles are places in the list, from 1 on. */
static Gpu *of(void *handle) {
  long at = (long)handle - 1;
  while (there("hang")) usleep(20000);
  return at >= 0 && at < load() ? &gpus[at] : NULL;
}

static int is(const Gpu *gpu, const char *state) { return strcmp(gpu->state, state) == 0; }

int nvmlInitWithFlags(unsigned flags) {
  char path[4096];
  int code = OK;
  (void)flags;
  place(path, "init");
  FILE *file = fopen(path, "r");
  if (file) {
    if (fscanf(file, "%d", &code) != 1) code = 999;
    fclose(file);
  }
  return code;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) { return code == GPU_IS_LOST ? "GPU is lost" : "Unknown Error"; }

int nvmlDeviceGetCount_v2(unsigned *found) {
  int count = load();
  *found = 0;
  for (int at = 0; at < count; at++) *found += !is(&gpus[at], "mig");
  return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  int count = load();
  for (int at = 0; at < count; at++)
    if (!is(&gpus[at], "mig") && index-- == 0) {
      if (is(&gpus[at], "lost")) return GPU_IS_LOST;
      *handle = (void *)(long)(at + 1);
      return OK;
    }
  return INVALID_ARGUMENT;
}

static int text(const char *from, char *to, unsigned length) {
  if (strlen(from) >= length) return INSUFFICIENT_SIZE;
  strcpy(to, from);
  return OK;
}

#define FIND                                \
  Gpu *gpu = of(handle);                    \
  if (!gpu) return INVALID_ARGUMENT;        \
  if (is(gpu, "lost")) return GPU_IS_LOST

int nvmlDeviceGetUUID(void *handle, char *to, unsigned length) { FIND; return text(gpu->uuid, to, length); }
int nvmlDeviceGetName(void *handle, char *to, unsigned length) { FIND; return text(gpu->name, to, length); }

int nvmlDeviceGetMemoryInfo(void *handle, Memory *to) {
  FIND;
  to->total = gpu->total << 20;
  to->used = gpu->used << 20;
  to->free = to->total - to->used;
  return OK;
}

int nvmlDeviceGetUtilizationRates(void *handle, Utilization *to) {
  FIND;
  if (is(gpu, "mig")) return NOT_SUPPORTED;
  to->gpu = gpu->busy;
  to->memory = 0;
  return OK;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
  FIND;
  if (is(gpu, "ok")) return NOT_SUPPORTED;
  *current = *pending = is(gpu, "mig-on");
  return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) { FIND; *count = 7; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **part) {
  int count = load(), number = -1;
  for (int at = 0; at < count; at++) {
    number += !is(&gpus[at], "mig");
    if (at == (long)handle - 1) break;
  }
  for (int at = 0; at < count; at++)
    if (is(&gpus[at], "mig") && gpus[at].parent == number && index-- == 0) {
      *part = (void *)(long)(at + 1);
      return OK;
    }
  return NOT_FOUND;
}

static unsigned processes(const Gpu *gpu, ProcessInfo *found, unsigned *busy, unsigned most) {
  char path[4096], line[512], uuid[96];
  unsigned count = 0;
  place(path, ".");
  DIR *folder = opendir(path);
  struct dirent *entry;
  while (folder && (entry = readdir(folder))) {
    unsigned pid, percent;
    unsigned long long used;
    if (strncmp(entry->d_name, "process-", 8)) continue;
    place(path, entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file) continue;
    /* The driver forgets a process that has ended. */
    if (fgets(line, sizeof line, file) && sscanf(line, "%95[^|]|%u|%llu|%u", uuid, &pid, &used, &percent) == 4 &&
        strcmp(uuid, gpu->uuid) == 0) {
      char alive[64];
      snprintf(alive, sizeof alive, "/proc/%u", pid);
      if (access(alive, F_OK) == 0) {
        if (found && count < most) {
          memset(&found[count], 0, sizeof *found);
          found[count].pid = pid;
          found[count].used = used << 20;
          busy[count] = percent;
        }
        count++;
      }
    }
    fclose(file);
  }
  if (folder) closedir(folder);
  return count;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *found) {
  unsigned busy[MOST], most = *count < MOST ? *count : MOST, there;
  FIND;
  there = processes(gpu, found, busy, most);
  if (found == NULL || there > most) {
    *count = there;
    return there ? INSUFFICIENT_SIZE : OK;
  }
  *count = there;
  return OK;
}

int nvmlDeviceGetProcessUtilization(void *handle, Sample *samples, unsigned *count, unsigned long long since) {
  ProcessInfo found[MOST];
  unsigned busy[MOST], there, at, kept = 0;
  struct timespec now;
  FIND;
  (void)since;
  if (is(gpu, "mig")) return NOT_SUPPORTED;
  there = processes(gpu, found, busy, MOST);
  if (!there) return NOT_FOUND;
  if (!samples) {
    *count = there;
    return INSUFFICIENT_SIZE;
  }
  clock_gettime(CLOCK_REALTIME, &now);
  for (at = 0; at < there && at < MOST && kept < *count; at++) {
    memset(&samples[kept], 0, sizeof *samples);
    samples[kept].pid = found[at].pid;
    samples[kept].sm = busy[at];
    samples[kept].time = now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
    kept++;
  }
  *count = kept;
  return kept ? OK : NOT_FOUND;
}
