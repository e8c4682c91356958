#pragma once
/// A TensorInfo as JSON, for ranks to tell each other: [name, dtype, [sizes]].

#include <nlohmann/json.hpp>
#include <vector>

#include "checkpoint/state.h"

namespace checkpoint {

inline nlohmann::json to_row(const TensorInfo& info) {
  nlohmann::json sizes = nlohmann::json::array();
  for (int dim = 0; dim < info.shape.num_dims(); ++dim) sizes.push_back(info.shape[dim]);
  return nlohmann::json::array({info.name, static_cast<int>(info.dtype), sizes});
}

inline TensorInfo from_row(const nlohmann::json& row) {
  const auto sizes = row.at(2).get<std::vector<int64_t>>();
  TensorInfo info{.name = row.at(0), .dtype = static_cast<tensor::Dtype>(row.at(1).get<int>()), .shape = {}};
  switch (sizes.size()) {
    case 1:
      info.shape = {sizes[0]};
      break;
    case 2:
      info.shape = {sizes[0], sizes[1]};
      break;
    case 3:
      info.shape = {sizes[0], sizes[1], sizes[2]};
      break;
    default:
      info.shape = {sizes.at(0), sizes.at(1), sizes.at(2), sizes.at(3)};
  }
  return info;
}

}  // namespace checkpoint
