/* All that runs in the containers of a machine: it waits until it is told to stop, and reaps what is left to it. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

int main(void) {
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGTERM);
  sigaddset(&watched, SIGINT);
  sigaddset(&watched, SIGCHLD);
  sigprocmask(SIG_BLOCK, &watched, NULL);
  puts("waiting");
  fflush(stdout);
  for (;;) {
    int signal = 0;
    sigwait(&watched, &signal);
    if (signal != SIGCHLD) return 0;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
  }
}
