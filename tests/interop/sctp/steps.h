#ifndef STEPS_H
#define STEPS_H

#include "peer.h"

bool step_known(const char *step);
/* Does the next step of an open session, if it can be done now. */
void steps_run(struct session *s);

#endif
