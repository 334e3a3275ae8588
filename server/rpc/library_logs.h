// What gRPC and protobuf have to say goes to our log, in its format.
#pragma once

namespace nightshift {

// Once, before the first call of either.
void RouteLibraryLogs();

}  // namespace nightshift
