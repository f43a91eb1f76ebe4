// Operations of Kafka's protocol that the session may do on a resource, as the bits of `authorized_operations`.
const BITS = { READ: 3, WRITE: 4, CREATE: 5, DELETE: 6, ALTER: 7, DESCRIBE: 8, DESCRIBE_CONFIGS: 10, ALTER_CONFIGS: 11 };
// The value of a response that does not have the operations.
const UNKNOWN = -(2 ** 31);

// permits(group.authorized_operations, "DELETE"). If the server does not say, the action is offered and may be refused.
export function permits(operations, name) {
  return operations === undefined || operations === UNKNOWN || Boolean(operations & (1 << BITS[name]));
}
