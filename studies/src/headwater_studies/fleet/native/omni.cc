// Clients of a CORBA event service (omniEvents), in the push model: `near` supplies, `far` consumes or sends back.
//
//   omni near URI     URI of the service's factory of channels, which makes the three channels used here
//   omni far PREFIX   PREFIX of the channels' own URIs
//
// Told what to do line by line, and answers each line with one:
//   trips N                  seconds of the median and of 99% of N round trips
//   send N HOW               "same", "fresh" (numbered) or "wide" (numbered, and `pick` scattered over 0 to 999) events;
//                            when the first was sent
//   expect N MODE LIMIT      what the next N events are for: "count", "decode" or "below" LIMIT
//   wait SECONDS             until they have come: when, how many, how many were useful, the sum of their numbers
//   echo N                   waits until N events were sent back
//   cpu                      processor time of this process
// An event is a CORBA::Any with a sequence of eight doubles: 64 bytes, typed.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <omniORB4/CORBA.h>
#include <COS/CosEventChannelAdmin.hh>
#include <COS/CosLifeCycle.hh>

namespace {

const char* const CHANNELS[] = {"ping", "pong", "data"};
const CORBA::ULong CYCLE_NS = 1;               // by itself a channel passes events on every 0.1 s
const CORBA::ULong QUEUE = 4 * 1024 * 1024;    // events; more would be dropped, the oldest first

double now(clockid_t clock = CLOCK_MONOTONIC) {
  timespec at;
  clock_gettime(clock, &at);
  return at.tv_sec + at.tv_nsec * 1e-9;
}

CORBA::Any event(long number, long pick) {
  CORBA::DoubleSeq fields;
  fields.length(8);
  fields[0] = pick;
  fields[1] = number % 12;
  fields[2] = number;
  fields[3] = 0.0;
  for (int at = 0; at < 4; ++at) fields[4 + at] = 4.5 + at;
  CORBA::Any made;
  made <<= fields;
  return made;
}

// What has come, and who waits for it.
struct State {
  std::mutex lock;
  std::condition_variable changed;
  long goal = -1, got = 0, useful = 0, echoed = 0, trips = 0;
  double limit = 0, total = 0, end = 0, last = 0;
  std::string mode;
  std::vector<double> times;
} state;

CosEventChannelAdmin::ProxyPushConsumer_var ping, pong, data;

class Consumer : public POA_CosEventComm::PushConsumer {
 public:
  void disconnect_push_consumer() override {}
};

class Echo : public Consumer {
 public:
  void push(const CORBA::Any& came) override {
    pong->push(came);
    std::lock_guard<std::mutex> held(state.lock);
    ++state.echoed;
    state.changed.notify_all();
  }
};

class Back : public Consumer {
 public:
  void push(const CORBA::Any& came) override {
    const double at = now();
    bool more;
    {
      std::lock_guard<std::mutex> held(state.lock);
      state.times.push_back(at - state.last);
      state.last = at;
      more = static_cast<long>(state.times.size()) < state.trips;
      if (!more) state.changed.notify_all();
    }
    if (more) ping->push(came);
  }
};

class Taker : public Consumer {
 public:
  void push(const CORBA::Any& came) override {
    std::lock_guard<std::mutex> held(state.lock);
    if (state.mode != "count") {
      const CORBA::DoubleSeq* fields;
      if (!(came >>= fields) || fields->length() != 8) return;  // it will be missing
      if (state.mode == "decode")
        state.total += (*fields)[2];
      else if ((*fields)[0] < state.limit)
        ++state.useful;
    }
    if (++state.got == state.goal) {
      state.end = now();
      state.changed.notify_all();
    }
  }
};

template <class Interface>
typename Interface::_ptr_type found(CORBA::ORB_ptr orb, const std::string& uri) {
  CORBA::Object_var object = orb->string_to_object(uri.c_str());
  typename Interface::_var_type narrowed = Interface::_narrow(object);
  if (CORBA::is_nil(narrowed)) throw CORBA::OBJECT_NOT_EXIST();
  return narrowed._retn();
}

void criterion(CosLifeCycle::Criteria& all, const char* name, const CORBA::Any& value) {
  const CORBA::ULong at = all.length();
  all.length(at + 1);
  all[at].name = name;
  all[at].value = value;
}

CosEventChannelAdmin::EventChannel_ptr created(CosLifeCycle::GenericFactory_ptr factory, const char* name) {
  CosLifeCycle::Key key;
  key.length(1);
  key[0].id = "EventChannel";
  key[0].kind = "object interface";
  CosLifeCycle::Criteria criteria;
  CORBA::Any cycle, queue, called;
  cycle <<= CYCLE_NS;
  queue <<= QUEUE;
  called <<= name;
  criterion(criteria, "CyclePeriod_ns", cycle);
  criterion(criteria, "MaxQueueLength", queue);
  criterion(criteria, "InsName", called);
  CORBA::Object_var object = factory->create_object(key, criteria);
  return CosEventChannelAdmin::EventChannel::_narrow(object);
}

CosEventChannelAdmin::ProxyPushConsumer_ptr supplier(CosEventChannelAdmin::EventChannel_ptr channel) {
  CosEventChannelAdmin::SupplierAdmin_var admin = channel->for_suppliers();
  CosEventChannelAdmin::ProxyPushConsumer_var proxy = admin->obtain_push_consumer();
  proxy->connect_push_supplier(CosEventComm::PushSupplier::_nil());
  return proxy._retn();
}

void consume(CosEventChannelAdmin::EventChannel_ptr channel, Consumer* consumer) {
  CosEventChannelAdmin::ConsumerAdmin_var admin = channel->for_consumers();
  CosEventChannelAdmin::ProxyPushSupplier_var proxy = admin->obtain_push_supplier();
  CosEventComm::PushConsumer_var reference = consumer->_this();
  proxy->connect_push_consumer(reference);
}

void send(long n, const std::string& how) {
  std::vector<CORBA::Any> made;
  if (how != "fresh")
    for (long number = 0; number < (how == "wide" ? 1000 : 1); ++number)
      made.push_back(event(number, number * 619 % 1000));
  const double start = now();
  for (long number = 0; number < n; ++number)
    data->push(how == "fresh" ? event(number, number % 100) : made[number % made.size()]);
  printf("%.9f\n", start);
}

void trips(long n) {
  std::unique_lock<std::mutex> held(state.lock);
  state.times.clear();
  state.trips = n;
  state.last = now();
  held.unlock();
  ping->push(event(0, 0));
  held.lock();
  const bool all = state.changed.wait_for(held, std::chrono::seconds(60),
                                          [n] { return static_cast<long>(state.times.size()) == n; });
  if (!all) {
    printf("error %zu of %ld round trips were made\n", state.times.size(), n);
    return;
  }
  std::sort(state.times.begin(), state.times.end());
  printf("%.9f %.9f\n", state.times[n / 2], state.times[n * 99 / 100]);
}

void obey(const std::string& line) {
  std::istringstream words(line);
  std::string what, mode;
  long n = 0;
  words >> what >> n;
  if (what == "trips") {
    trips(n);
  } else if (what == "send") {
    words >> mode;
    send(n, mode);
  } else if (what == "expect") {
    std::lock_guard<std::mutex> held(state.lock);
    state.goal = n;
    state.got = state.useful = 0;
    state.total = state.end = 0;
    words >> state.mode >> state.limit;
    printf("ok\n");
  } else if (what == "wait") {
    std::unique_lock<std::mutex> held(state.lock);
    state.changed.wait_for(held, std::chrono::seconds(n), [] { return state.got >= state.goal; });
    printf("%.9f %ld %ld %.1f\n", state.end > 0 ? state.end : now(), state.got, state.useful, state.total);
  } else if (what == "echo") {
    std::unique_lock<std::mutex> held(state.lock);
    state.changed.wait_for(held, std::chrono::seconds(60), [n] { return state.echoed >= n; });
    state.echoed -= n;
    printf("ok\n");
  } else if (what == "cpu") {
    printf("%.9f\n", now(CLOCK_PROCESS_CPUTIME_ID));
  } else {
    printf("error unknown: %s\n", line.c_str());
  }
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const bool near = std::string(argv[1]) == "near";
  const std::string uri = argv[2];
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    PortableServer::POAManager_var manager = poa->the_POAManager();
    manager->activate();
    CosEventChannelAdmin::EventChannel_var channels[3];
    if (near) {
      CosLifeCycle::GenericFactory_var factory = found<CosLifeCycle::GenericFactory>(orb, uri);
      for (int at = 0; at < 3; ++at) channels[at] = created(factory, CHANNELS[at]);
      ping = supplier(channels[0]);
      data = supplier(channels[2]);
      consume(channels[1], new Back);
    } else {
      for (int at = 0; at < 3; ++at) channels[at] = found<CosEventChannelAdmin::EventChannel>(orb, uri + CHANNELS[at]);
      pong = supplier(channels[1]);
      consume(channels[0], new Echo);
      consume(channels[2], new Taker);
    }
    printf("ready\n");
    fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) obey(line);
  } catch (const CORBA::Exception& error) {
    printf("error %s\n", error._name());
    fflush(stdout);
    _exit(1);
  }
  _exit(0);  // whoever started this does not wait for connections to be closed
}
