// 300 turns of an event loop that each compute; one in 50 takes twenty times as long.
function sumOfSquares(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) sum = (sum + i * i) % 1000003;
  return sum;
}
let left = 300;
let total = 0;
function turn() {
  total += sumOfSquares(left % 50 == 0 ? 2e6 : 1e5);
  if (--left) setTimeout(turn, 1);
  else console.log(total);
}
turn();
