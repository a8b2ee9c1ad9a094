// Stands for NVRTC: "compiles" a source to a copy of it, and does what the source says: FAIL, CRASH or HANG.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char source[1 << 16], log_text[1 << 16];

int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 2, 0; }
int nvrtcGetNumSupportedArchs(int* count) { return *count = 2, 0; }
int nvrtcGetSupportedArchs(int* found) { return found[0] = 80, found[1] = 90, 0; }
const char* nvrtcGetErrorString(int result) { return result ? "NVRTC_ERROR" : "NVRTC_SUCCESS"; }
int nvrtcCreateProgram(void** program, const char* text, const char* name, int count, const char** headers,
                       const char** names) {
  *program = source;
  strncpy(source, text, sizeof source - 1);
  return count == 1 && !strcmp(names[0], "a.h") && !strcmp(headers[0], "header") ? 0 : 1;
}
int nvrtcCompileProgram(void* program, int count, const char** options) {
  if (strstr(source, "CRASH")) abort();
  while (strstr(source, "HANG")) sleep(1);
  strcpy(log_text, strstr(source, "FAIL") ? "kernel.cu(1): error: no such thing\n" : "");
  for (int i = 0; i < count; ++i) strcat(strcat(log_text, options[i]), "\n");
  return strstr(source, "FAIL") ? 6 : 0;
}
int nvrtcGetProgramLogSize(void* program, size_t* size) { return *size = strlen(log_text) + 1, 0; }
int nvrtcGetProgramLog(void* program, char* log) { return strcpy(log, log_text), 0; }
int nvrtcGetCUBINSize(void* program, size_t* size) { return *size = strlen(source), 0; }
int nvrtcGetCUBIN(void* program, char* data) { return memcpy(data, source, strlen(source)), 0; }
int nvrtcGetPTXSize(void* program, size_t* size) { return *size = 3, 0; }
int nvrtcGetPTX(void* program, char* data) { return memcpy(data, "ptx", 3), 0; }
int nvrtcDestroyProgram(void** program) { return 0; }
