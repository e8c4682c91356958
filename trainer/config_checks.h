#pragma once
/// What no single key can be blamed for: contradictions between keys, and layouts that this version cannot run.

#include "trainer/config.h"
#include "trainer/findings.h"

namespace trainer {

/// Depends on the values alone, so that a written config that passed passes again.
void check_config(const Config& config, const ConfigPlaces& places, Findings& findings);

}  // namespace trainer
