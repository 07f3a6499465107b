-- Revenue of each minute and region.
CREATE STREAMING TABLE revenue AS
SELECT
  window.start AS minute,
  region,
  count(*) AS orders,
  sum(quantity) AS units,
  sum(quantity * cents) AS cents
FROM STREAM orders WATERMARK placed DELAY OF INTERVAL 10 MINUTES
GROUP BY window(placed, '1 minute'), region;

-- Each customer's orders that lie less than three minutes apart.
CREATE STREAMING TABLE sessions AS
SELECT
  customer,
  session_window.start AS begin,
  session_window.end AS end,
  count(*) AS orders,
  sum(quantity) AS units,
  sum(quantity * cents) AS cents
FROM STREAM orders WATERMARK placed DELAY OF INTERVAL 10 MINUTES
GROUP BY session_window(placed, '3 minutes'), customer;
