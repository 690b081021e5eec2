#pragma once

namespace steptape::recorder {

/// Closes a listener when the step ends, by return or by exception: a thread of the step that goes
/// on must not write to objects that may be gone.
template <typename Listener>
class Closing {
 public:
  explicit Closing(Listener& listener) : listener_(listener) {}
  ~Closing() { listener_.close(); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;

 private:
  Listener& listener_;
};

}  // namespace steptape::recorder
