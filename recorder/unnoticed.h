#pragma once

namespace steptape::recorder {

class FrontendHints;

/// While it lives in a thread that records, the front end is not told: it runs the step as if there
/// was not a recording, and ops alone are written down.
class Unnoticed {
 public:
  Unnoticed();
  ~Unnoticed();
  Unnoticed(const Unnoticed&) = delete;
  Unnoticed& operator=(const Unnoticed&) = delete;

 private:
  FrontendHints* previous_;
};

}  // namespace steptape::recorder
